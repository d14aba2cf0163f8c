"""Engines from a checkout: what cannot be had, a build that fails, and a real one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from llgbench import git_build, sides
from llgbench.compare_worker import Job, run
from llgbench.errors import EngineError, InputError

RELEASE = "1.9.1"


def commit(folder: Path) -> None:
    for words in (
        ["init", "-q", "-b", "main"], ["add", "--all", "--force", "."],
        ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "one"],
    ):  # fmt: skip
        subprocess.run(["git", "-C", str(folder), *words], check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "llguidance"\nversion = "0.0.1"\nedition = "2021"\n[lib]\n'
    )
    (folder / "src" / "lib.rs").write_text("this is no Rust\n")
    commit(folder)
    return folder


def test_revisions_that_cannot_be_had(repository: Path) -> None:
    with pytest.raises(InputError, match="no revision 'v9'"):
        git_build.parse(f"git:{repository}@v9")
    with pytest.raises(InputError, match="write git:PATH@REV"):
        git_build.parse("git:nowhere")
    with pytest.raises(InputError, match="no git checkout"):
        git_build.parse(f"git:{repository.parent}/nothing@HEAD")
    assert len(git_build.parse(f"git:{repository}@HEAD").commit) == 40


def test_a_failed_build_shows_cargo_and_its_log(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLGBENCH_CACHE", str(tmp_path / "cache"))
    if shutil.which("cargo") is None:
        pytest.skip("no cargo")
    with pytest.raises(EngineError, match=r"could not compile.*the log is .*build\.log"):
        git_build.build(git_build.parse(f"git:{repository}@HEAD"), lambda _: None)


# ---- a real one ----


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository of llguidance's published crate, as cargo has it; it fetches nothing."""
    if shutil.which("cargo") is None:
        pytest.skip("no cargo")
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    crate = next(home.glob(f"registry/src/*/llguidance-{RELEASE}"), None)
    if crate is None:
        pytest.skip(f"llguidance {RELEASE} is not in cargo's cache")
    folder = tmp_path / "llguidance"
    shutil.copytree(crate, folder, ignore=shutil.ignore_patterns(".cargo*"))
    commit(folder)
    return folder


@pytest.mark.usefixtures("_vocabs_here")
def test_a_revision_is_built_and_allows_what_its_release_allows(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    # What is asked is whether it can be built, not how fast it runs.
    monkeypatch.setenv("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
    lines: list[str] = []
    try:
        built = sides.resolve(f"git:{checkout}@main", lines.append)
    except EngineError as error:
        if "offline" in str(error):
            pytest.skip(f"cargo's cache lacks a dependency: {error}")
        raise
    assert len(lines) == 1
    assert f"building llguidance main ({built.commit and built.commit[:10]})" in lines[0]
    assert built.commit == git_build.parse(f"git:{checkout}@HEAD").commit
    assert built.release == RELEASE
    wheel = sides.resolve("wheel", lines.append)
    assert built.sha256 != wheel.sha256
    cases = ("listed", "json-enum")
    done = run(Job(0, wheel, built, "llama-spm", "greedy_tokenize", cases, 0, mode="verify"))
    assert done["differences"] == []
    assert all(done["cases"][case]["steps"] > 0 for case in cases)
    # A second call builds nothing and says nothing.
    assert sides.resolve(f"git:{checkout}@HEAD", lines.append).library == built.library
    assert len(lines) == 1
