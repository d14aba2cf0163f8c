"""The configuration and the benchmarks that llgbench asv writes."""

from __future__ import annotations

import os
import re
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest
from asv.config import Config
from click.testing import CliRunner

from llgbench import paths
from llgbench.asv import config as asv_config
from llgbench.asv import metrics, references
from llgbench.asv.commit_benchmarks import ratio_twin
from llgbench.asv.references import Link
from llgbench.commands.alerts import asv_command
from llgbench.compare.side import Side
from llgbench.engines import registry
from llgbench.errors import InputError, RecordError, UnknownNameError


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "llguidance"
    folder.mkdir()
    (folder / "Cargo.toml").write_text("")
    for words in (
        ["init", "-q", "-b", "main"], ["add", "."],
        ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "one"],
    ):  # fmt: skip
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


def test_asv_reads_the_configuration(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    path = asv_config.write(checkout, cases=("listed",), vocabs=("llama-spm",))
    conf = Config.load(str(path))
    assert conf.repo == str(checkout)
    assert conf.branches == ["main"]
    assert conf.show_commit_url == "https://github.com/guidance-ai/llguidance/commit/"
    assert "--crate-type cdylib" in conf.build_command[0]
    assert conf.build_command[0].startswith("in-dir={build_dir} /bin/cargo ")
    assert conf.matrix == {}  # no path in the name of the environment, which is the series'
    monkeypatch.delenv(paths.ROOT_VARIABLE)
    names: dict[str, object] = {}
    source = (path.parent / "benchmarks" / "masks.py").read_text()
    exec(compile(source, "masks.py", "exec"), names)
    times: Any = names["Masks"]
    ratios: Any = names["Ratios"]
    assert times.params == ratios.params == (["listed"], ["llama-spm"])
    methods = [name for name in vars(times) if name.startswith("track_")]
    assert methods == ["track_tbm_p50", "track_tbm_p99", "track_ttfm", "track_consume"]
    for name in methods:
        twin = ratio_twin(f"masks.Masks.{name}")
        assert twin == f"masks.Ratios.{name}"
        assert hasattr(ratios, name)
        assert ratio_twin(twin) is None
    # A ratio to another engine is another benchmark's; a time is not.
    assert registry.get("wheel").sha256 in ratios.version
    sameness: Any = names["Sameness"]
    for name, owner in (("Masks", times), ("Ratios", ratios), ("Sameness", sameness)):
        for method in (method for method in dir(owner) if method.startswith("track_")):
            declared = metrics.declared(name, method.removeprefix("track_"))
            assert declared is not None
            assert owner.unit == declared.unit
    assert os.environ[paths.ROOT_VARIABLE] == str(paths.root())
    (no_regressions,) = conf.regressions_first_commits
    assert re.match(no_regressions, "masks.Masks.track_ttfm(listed)@main")
    assert not re.match(no_regressions, "masks.Ratios.track_ttfm(listed)@main")


def test_asv_refuses_what_it_could_not_measure(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    with pytest.raises(InputError, match="no revision 'other'"):
        asv_config.write(checkout, branch="other")
    with pytest.raises(InputError, match="not a git checkout"):
        asv_config.write(checkout.parent / "nothing")
    with pytest.raises(UnknownNameError, match="vocab"):
        asv_config.write(checkout, vocabs=("llama-bep",))
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(InputError, match="cargo"):
        asv_config.write(checkout)


def test_the_command_chains_the_reference_so_far(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is measured is proven in test_references.py; here, of what, and where it is kept."""
    wheel = registry.get("wheel")
    (checkout.parent / "old.so").write_bytes(wheel.path.read_bytes() + b"\0")
    asked: list[Any] = []

    def measure(old: Side, new: Side, *suite: tuple[str, ...]) -> Link:
        asked.append((new.sha256, *suite))
        return Link(
            old=old.sha256, new=new.sha256, old_release="1.0", new_release="1.1",
            date="2026-12-01", ratios={"listed | llama-spm": {"consume": [0.9, 0.91]}},
            same_masks={"listed | llama-spm": True},
        )  # fmt: skip

    monkeypatch.setattr(references, "measure", measure)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    arguments = ["--repo", str(checkout), "--case", "listed", "--vocab", "llama-spm"]
    arguments += ["--chain", str(checkout.parent / "old.so")]
    done = CliRunner().invoke(asv_command, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert asked == [(wheel.sha256, ("listed",), ("llama-spm",))]
    assert "takes 0.905 to 0.905 of the time of 1.1" in done.stderr
    folder = checkout.with_name("llguidance-asv")
    (kept,) = references.read(folder / "results" / references.FILE)
    assert kept.new in (folder / "benchmarks" / "masks.py").read_text()


@pytest.mark.parametrize("path", ["asv.conf.json", "results/reference.json"])
def test_our_own_configurations_need_no_branch_main(path: str) -> None:
    """A clone of another branch, or of a single commit, has none, and asv check fails there."""
    assert Config.load(str(paths.root() / path)).branches == ["HEAD"]


def test_a_full_disk_leaves_no_half_suite(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    first = asv_config.write(checkout, checkout.parent / "first").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (first + 1, hard))
    try:
        with pytest.raises(RecordError, match=r"cannot write .*masks\.py: File too large"):
            asv_config.write(checkout, checkout.parent / "second")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (checkout.parent / "second").exists()
