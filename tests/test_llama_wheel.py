"""The one wheel of llama-cpp-python: named by the pin, kept, linked, and not built twice."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import venv
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("llama_wheel", ROOT / "tools" / "llama_wheel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pin_has_one_place(tool: ModuleType) -> None:
    requirement = tool.requirement()
    assert f'"{requirement}"' in (ROOT / "pyproject.toml").read_text()
    key = subprocess.run(
        [sys.executable, "-I", ROOT / "tools" / "llama_wheel.py", "--key"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert requirement in key
    assert "GGML_NATIVE=OFF" in key


def test_a_wheel_that_is_kept_is_not_built(tool: ModuleType, tmp_path: Path) -> None:
    version = tool.requirement().partition("==")[2]
    assert tool.kept(tmp_path, tool.requirement()) is None
    other = tmp_path / f"llama_cpp_python-{version}0-py3-none-linux_x86_64.whl"
    other.touch()
    assert tool.kept(tmp_path, tool.requirement()) is None
    wheel = tmp_path / f"llama_cpp_python-{version}-py3-none-linux_x86_64.whl"
    wheel.touch()
    assert tool.build(tmp_path, tool.requirement()) == wheel


def test_the_link_is_mended(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    for folder in ("old", "new", "new"):
        tool.link(tmp_path / folder, tmp_path)
        assert (tmp_path / tool.LINK).resolve() == tmp_path / folder


def test_every_install_looks_there_first(tool: ModuleType) -> None:
    """Else pip takes what its own cache has, which may be of another processor."""
    installs = json.loads((ROOT / "asv.conf.json").read_text())["install_command"]
    for path in ("Makefile", ".github/workflows/nightly.yml", "action.yml"):
        text = (ROOT / path).read_text().replace("\\\n", " ")
        installs += [line for line in text.splitlines() if "--editable" in line]
    assert len(installs) >= 4
    assert all(f"{tool.LINK}" in line and "--find-links" in line for line in installs)


def test_without_pip_it_says_so_in_one_line(tmp_path: Path) -> None:
    place = tmp_path / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    done = subprocess.run(
        [place / "bin" / "python", ROOT / "tools" / "llama_wheel.py"],
        env={"LLGBENCH_CACHE": str(tmp_path / "cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.endswith("has no pip; run: python -m ensurepip")
