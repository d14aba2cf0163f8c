"""What is printed: as it is, in any encoding, whole or not at all."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from llgbench import output

PRINTS = """
import sys
from llgbench import output
output.prepare_streams()
row = {"time µs": 1.5, "ratio": "1.0 – 1.1 → ≈2× …", "name": "caf\\u00e9 \\udcff"}
output.print_table([row], title="µ – → é")
output.say("µ – → \\udcff")
output.print_json(row) if "--json" in sys.argv else None
"""


def printed(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", PRINTS, *arguments], capture_output=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-8"])
def test_every_encoding_takes_our_words(encoding: str) -> None:
    done = printed(PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode(encoding)
    assert "\\udcff" in text
    assert ("µ" in text) == (encoding != "ascii")
    assert ("–" in text) == (encoding == "utf-8")
    if encoding == "ascii":
        assert text.splitlines()[0] == "u - -> \\xe9"
        assert "1.0 - 1.1 -> ~2x ..." in text
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_in_every_encoding(encoding: str) -> None:
    done = printed("--json", PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode(encoding)
    assert json.loads(text[text.index("{") :])["name"] == "café \udcff"


def table(rows: list[output.Row], monkeypatch: pytest.MonkeyPatch, title: str = "") -> str:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    output.print_table(rows, title=title)
    return stream.getvalue()


@pytest.mark.parametrize("text", ["[/b]", "[a-z0-9_]", "[red]x[/red]", ":smile:", "\\[b]", "]["])
def test_markup_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    shown = table([{text: text, "n": 1}], monkeypatch, title=text)
    assert shown.count(text) == 3


def test_what_would_move_the_cursor_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = table([{"a": "x\ny\tz\x1b[2J\x9b\u202e"}], monkeypatch, title="a\nb\r")
    assert shown.splitlines()[0] == "a\\nb\\r"
    assert "x\\ny\\tz\\x1b[2J\\x9b\\u202e" in shown
    assert len(shown.splitlines()) == 3


def test_a_progress_line_has_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with output.steps(1, "[/b]") as progress:
        progress.doing("[/nothing]")
    assert "[/nothing]" in terminal.getvalue()


def test_a_full_stderr_ends_nothing() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from llgbench import output; output.say('x'); print('on')"],
            stdout=subprocess.PIPE, stderr=full, check=False, text=True,
        )  # fmt: skip
    assert done.stdout == "on\n"


@pytest.mark.parametrize("name", ["echo", "print_json"])
def test_a_full_stdout_is_said_in_one_line(name: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", f"from llgbench import output; output.{name}('x')"],
            stdout=full, stderr=subprocess.PIPE, check=False, text=True,
        )  # fmt: skip
    last = done.stderr.splitlines()[-1]
    assert last.endswith("cannot write to standard output: No space left on device")
