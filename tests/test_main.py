"""The entry point of the command line: a failure at start ends in one line and status 2."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest


def start(
    *arguments: str, address_space_kib: int | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        if address_space_kib is not None:
            size = address_space_kib << 10
            resource.setrlimit(resource.RLIMIT_AS, (size, size))

    return subprocess.run(
        [sys.executable, "-m", "llgbench", *arguments], capture_output=True, text=True,
        check=False, preexec_fn=limit, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("kib", [30_000, 60_000, 100_000, 200_000, 400_000])
def test_too_little_memory_is_one_line(kib: int) -> None:
    done = start("check", "--case", "listed", "--vocab", "llama-spm", address_space_kib=kib)
    [line] = done.stderr.splitlines()
    assert line.startswith("llgbench: ")
    assert (done.returncode, done.stdout) == (2, "")
    assert "ulimit -v" in line or "failed to map segment" in line


@pytest.mark.parametrize("kib", [30_000, 60_000, 400_000])
def test_help_is_shown_or_refused_in_one_line(kib: int) -> None:
    done = start("--help", address_space_kib=kib)
    if done.returncode == 0:
        assert "Exit status" in done.stdout
        return
    [line] = done.stderr.splitlines()
    assert (done.returncode, line[:10]) == (2, "llgbench: ")


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("ImportError('msgspec is broken')", "missing or broken: msgspec is broken; install"),
        ("KeyboardInterrupt", "interrupted"),
        ("MemoryError", "out of memory at start"),
        ("OSError(5, 'Input/output error')", "cannot start: [Errno 5] Input/output error"),
    ],
)
def test_what_an_import_raises_is_one_line(tmp_path: Path, raised: str, told: str) -> None:
    (tmp_path / "msgspec.py").write_text(f"raise {raised}\n")
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(tmp_path), *([before] if before else [])])
    done = start("--version", PYTHONPATH=path)
    [line] = done.stderr.splitlines()
    assert line.startswith("llgbench: ")
    assert told in line
    assert (done.returncode, done.stdout) == (2, "")


def test_the_entry_point_alone_imports_nothing_but_the_standard_library() -> None:
    program = (
        "import sys; before = set(sys.modules); import llgbench.__main__; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["llgbench", "llgbench.__main__"]
