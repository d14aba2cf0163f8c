"""The doctor names what is wrong, and looks at the rest all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT


def doctor(**environment: str) -> dict[str, dict[str, str]]:
    """Run ``llgbench doctor --json`` and return its findings by what they are about."""
    done = subprocess.run(
        [sys.executable, "-m", "llgbench.commands.cli", "doctor", "--json"],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    findings = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert {"cpu", "governor", "empty step", "cargo", "git", "valgrind"} <= set(findings)
    assert all(finding["consequence"] for finding in findings.values() if finding["status"] != "ok")
    return findings


def test_llama_cpp_that_does_not_load(tmp_path: Path) -> None:
    finding = doctor(LLAMA_CPP_LIB_PATH=str(tmp_path))["llama.cpp"]
    assert finding["status"] == "skip"
    assert finding["detail"].startswith("llama.cpp's library does not load")


def test_a_damaged_registration(tmp_path: Path) -> None:
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "odd.json").write_text("{")
    found = doctor(LLGBENCH_CACHE=str(tmp_path))
    assert found["engine odd"]["status"] == "skip"
    assert "damaged" in found["engine odd"]["detail"]
    assert found["engine wheel"]["status"] == "ok"


@pytest.mark.parametrize("content", ["", "vocab = 5", "[[vocab]]"])
def test_a_damaged_catalogue(tmp_path: Path, content: str) -> None:
    for folder in ("vocabs", "grammars"):
        (tmp_path / folder).mkdir()
    (tmp_path / "engine").symlink_to(ROOT / "engine")
    (tmp_path / "vocabs" / "vocabs.toml").write_text(content)
    found = doctor(LLGBENCH_ROOT=str(tmp_path))
    assert found["vocabs"]["status"] == "skip"
    assert "vocabs.toml" in found["vocabs"]["detail"]
    assert "llama.cpp" in found


def test_no_tools(tmp_path: Path) -> None:
    found = doctor(PATH=str(tmp_path))
    assert [found[name]["status"] for name in ("cargo", "git", "valgrind")] == ["skip"] * 3
    assert found["engine wheel"]["status"] == "ok"


def test_a_cache_that_cannot_be_read(tmp_path: Path) -> None:
    found = doctor(LLGBENCH_CACHE=str(tmp_path / ("x" * 300)))
    assert "File name too long" in found["engines"]["detail"]
    assert "llama.cpp" in found
