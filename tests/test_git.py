from __future__ import annotations

from pathlib import Path

import pytest

from llgbench import git
from llgbench.errors import InputError, ProcessError


def test_gits_own_words_are_on_one_line(tmp_path: Path) -> None:
    assert git.ask(tmp_path, "--version").startswith(b"git version")
    with pytest.raises(InputError, match="not a git repository") as caught:
        git.ask(tmp_path, "rev-parse", "HEAD")
    assert "\n" not in str(caught.value)
    assert not str(caught.value).startswith("fatal")


def test_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProcessError, match="cannot start git"):
        git.ask(tmp_path, "--version")
