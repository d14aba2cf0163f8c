"""The command line without a process of its own: what it says on both streams, and its status.

Starting Python and importing the command line takes longer than most of its answers. What a process
alone shows (signals, a full disk, a closed stdout) is tested with one; see test_cli.py.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from conftest import ROOT

from llgbench.commands.cli import main


def llgbench(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command; file descriptors 1 and 2 are caught too, for what workers inherit."""
    words = ["llgbench", *map(str, arguments)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with pytest.MonkeyPatch.context() as patch, _signals_restored():
            patch.setattr(sys, "argv", words)
            patch.setenv("LLGBENCH_ROOT", str(ROOT))
            if cwd is not None:
                patch.chdir(cwd)
            with _descriptor(1, out.fileno()), _descriptor(2, err.fileno()):
                status = _status()
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode(errors="surrogateescape"))
    return subprocess.CompletedProcess(words, status, *said)


def _status() -> int:
    stdout, stderr = (
        io.TextIOWrapper(os.fdopen(os.dup(number), "wb", 0), encoding="utf-8", write_through=True)
        for number in (1, 2)
    )
    with stdout, stderr, redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            main()
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 1
        return 0


@contextmanager
def _descriptor(number: int, to: int) -> Iterator[None]:
    saved = os.dup(number)
    os.dup2(to, number)
    try:
        yield
    finally:
        os.dup2(saved, number)
        os.close(saved)


@contextmanager
def _signals_restored() -> Iterator[None]:
    handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
