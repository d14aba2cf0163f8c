"""What is no user's mistake: one line, the status that says so, and a log for whoever mends it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from llgbench.commands import cli
@cli.cli.command("break")
def broken():
    {0}
cli.main()
"""


def ended(statement: str, cache: Path, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(statement), "break"],
        capture_output=True, text=True, check=False,
        env={**os.environ, "LLGBENCH_CACHE": str(cache), **environment},
    )  # fmt: skip
    [line] = done.stderr.splitlines()
    assert done.stdout == ""
    return done.returncode, line


def log_of(line: str) -> Path:
    found = re.search(r"the traceback is in (\S+)", line)
    assert found is not None, line
    return Path(found[1])


@pytest.mark.parametrize(
    "statement", ["{}['key']", "raise ValueError('two\\nlines')", "assert False", "raise OSError"]
)
def test_a_defect_asks_for_a_report(tmp_path: Path, statement: str) -> None:
    status, line = ended(statement, tmp_path)
    assert status == 70
    assert "please report" in line
    log = log_of(line)
    assert log.parent == tmp_path / "logs"
    assert "Traceback" in log.read_text()
    assert "in broken" in log.read_text()


def test_the_log_goes_elsewhere_where_the_cache_takes_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, line = ended("1 / 0", tmp_path / "file" / "x", TMPDIR=str(tmp_path))
    assert status == 70
    assert log_of(line).parent == tmp_path


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("raise OSError(28, 'No space left on device')", "No space left"),
        ("open('/nowhere/at/all')", "/nowhere/at/all: No such file"),
        ("raise MemoryError", "out of memory"),
        ('raise RuntimeError("can\'t start new thread")', "no thread can be started"),
        ("import nothing_of_that_name", "nothing_of_that_name"),
    ],
)
def test_what_the_machine_refuses_is_no_defect(tmp_path: Path, statement: str, words: str) -> None:
    status, line = ended(statement, tmp_path)
    assert status == 2
    assert words in line
    assert "report it" not in line


@pytest.mark.parametrize("statement", ["b'\\xff'.decode()", "raise RecursionError"])
def test_input_that_nobody_named_is_refused_and_kept(tmp_path: Path, statement: str) -> None:
    status, line = ended(statement, tmp_path)
    assert status == 2
    assert log_of(line).is_file()
