from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from conftest import ROOT

from llgbench import paths
from llgbench.errors import InputError


def checkout(folder: Path) -> Path:
    (folder / "grammars").mkdir(parents=True)
    (folder / "vocabs").mkdir()
    (folder / "vocabs" / "vocabs.toml").touch()
    return folder.resolve()


def test_the_variable_names_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = checkout(tmp_path / "a")
    monkeypatch.setenv("LLGBENCH_ROOT", str(here))
    monkeypatch.chdir(checkout(tmp_path / "b"))
    assert paths.root() == here


def test_a_variable_that_names_no_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLGBENCH_ROOT", str(tmp_path))
    monkeypatch.chdir(ROOT)
    with pytest.raises(InputError, match="is not an llgbench checkout"):
        paths.root()


def test_a_parent_of_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LLGBENCH_ROOT")
    here = checkout(tmp_path / "a")
    deep = here / "x" / "y"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert paths.root() == here


def test_the_checkout_the_package_is_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LLGBENCH_ROOT")
    monkeypatch.chdir(tmp_path)
    here = checkout(tmp_path / "a")
    monkeypatch.setattr(paths, "__file__", str(here / "src" / "llgbench" / "paths.py"))
    assert paths.root() == here


def test_no_checkout_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LLGBENCH_ROOT")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "src" / "llgbench" / "paths.py"))
    with pytest.raises(InputError, match="set LLGBENCH_ROOT"):
        paths.root()


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLGBENCH_CACHE", str(tmp_path / "mine"))
    assert paths.cache() == (tmp_path / "mine").resolve()
    assert not paths.cache().exists()
    monkeypatch.delenv("LLGBENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert paths.cache() == tmp_path / "xdg" / "llgbench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.cache() == tmp_path / ".cache" / "llgbench"
    for home in ("", None):  # then it is the user's in the system's list
        if home is None:
            monkeypatch.delenv("HOME")
        else:
            monkeypatch.setenv("HOME", home)
        known = Path(pwd.getpwuid(os.getuid()).pw_dir)
        assert paths.cache() == known / ".cache" / "llgbench"


def test_a_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LLGBENCH_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 77)
    with pytest.raises(InputError, match="set LLGBENCH_CACHE"):
        paths.cache()
