from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

import llgbench
from llgbench.measure import provenance, replay


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "a").write_text("1\n")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "--quiet", "--no-verify", "-m", "one")
    return tmp_path


def test_collect_is_plain_data() -> None:
    found = provenance.collect(ROOT)
    assert json.loads(json.dumps(found)) == found
    assert found["llgbench"] == llgbench.__version__
    assert found["packages"]["llguidance"] == "1.9.1"
    assert found["packages"]["llama-cpp-python"] == "0.3.36"
    assert found["clock"] in ("tsc", "clock_monotonic")
    assert 0 < found["empty_step_wall_ns"] < 2000
    assert found["machine"]["cpu"]
    assert found["machine"]["cores"] >= len(found["machine"]["affinity"]) > 0
    assert found["machine"]["memory_mib"] > 100


def test_identity_is_what_does_not_vary() -> None:
    first = provenance.identity(provenance.collect(ROOT))
    replay.empty_step.cache_clear()
    assert provenance.identity(provenance.collect(ROOT)) == first
    assert not [key for key in first if key.startswith("empty_step")]
    assert {"git", "machine", "packages", "python", "clock"} <= set(first)


def test_a_clean_tree(repository: Path) -> None:
    state = provenance.git_state(repository)
    assert state == {
        "commit": git(repository, "rev-parse", "HEAD"),
        "dirty": False,
        "changes": None,
    }


def test_a_changed_tree(repository: Path) -> None:
    (repository / "a").write_text("2\n")
    first = provenance.git_state(repository)
    assert first["dirty"]
    (repository / "a").write_text("3\n")
    second = provenance.git_state(repository)
    assert second["dirty"]
    assert first["changes"] != second["changes"]
    (repository / "a").write_text("1\n")
    assert not provenance.git_state(repository)["dirty"]


def test_a_change_that_is_not_utf8(repository: Path) -> None:
    for content in (b"caf\xe9\n", b"caf\xe8\n"):
        (repository / "a").write_bytes(content)
        (repository / "caf\udce9").write_bytes(content)
        state = provenance.git_state(repository)
        assert state["dirty"]
        assert json.loads(json.dumps(state)) == state
    # It is told from another change by its bytes.
    (repository / "a").write_bytes(b"caf\xea\n")
    assert provenance.git_state(repository)["changes"] != state["changes"]


def test_a_new_file_is_a_change_and_a_result_is_none(repository: Path) -> None:
    (repository / "results").mkdir()
    (repository / "results" / "r").write_text("x")
    assert not provenance.git_state(repository)["dirty"]
    (repository / "b").write_text("x")
    assert provenance.git_state(repository)["dirty"]


def test_no_repository(tmp_path: Path) -> None:
    unknown = {"commit": None, "dirty": None, "changes": None}
    assert provenance.git_state(tmp_path) == unknown
    assert provenance.git_state(tmp_path / "nowhere") == unknown


def test_no_git(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.git_state(repository)["commit"] is None


def test_a_package_that_is_not_installed() -> None:
    assert provenance.package_version("no-such-package-at-all") is None


def test_the_governor_is_a_word_or_none() -> None:
    assert provenance.governor() is None or provenance.governor() in {
        "performance", "powersave", "userspace", "ondemand", "conservative", "schedutil",
    }  # fmt: skip
