from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from llgbench import git
from llgbench.errors import InputError, UnavailableError


def test_gits_own_words_are_on_one_line(tmp_path: Path) -> None:
    assert git.ask(tmp_path, "--version").startswith(b"git version")
    with pytest.raises(InputError, match="not a git repository") as caught:
        git.ask(tmp_path, "rev-parse", "HEAD")
    assert "\n" not in str(caught.value)
    assert not str(caught.value).startswith("fatal")


def test_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="git does not run"):
        git.ask(tmp_path, "--version")


def test_asking_writes_nothing(tmp_path: Path) -> None:
    """``status`` refreshes the index where it may, under a lock that a kill leaves behind."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "a").write_text("a")
    subprocess.run(["git", "-C", tmp_path, "add", "a"], check=True)
    os.utime(tmp_path / "a", (1, 1))  # the index now has another time of it
    index = tmp_path / ".git" / "index"
    before = index.read_bytes()
    assert git.ask(tmp_path, "status", "--porcelain").strip() == b"A  a"
    assert index.read_bytes() == before
    subprocess.run(["git", "-C", tmp_path, "status"], check=True, capture_output=True)
    assert index.read_bytes() != before, "git has nothing to refresh, so this shows nothing"
