"""What is printed: as it is, in any encoding, whole or not at all."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from llgbench import output, shown

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
    written = table([{text: text, "n": 1}], monkeypatch, title=text)
    assert written.count(text) == 3


def test_what_would_move_the_cursor_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = table([{"a": "x\ny\tz\x1b[2J\x9b\u202e"}], monkeypatch, title="a\nb\r")
    assert written.splitlines()[0] == "a\\nb\\r"
    assert "x\\ny\\tz\\x1b[2J\\x9b\\u202e" in written
    assert len(written.splitlines()) == 3


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


MOVING = """
import sys
from llgbench import output
with output.moving("begins [/b]") as progress:
    progress("goes on [/b]")
    output.say("a line beside")
print("on")
"""


def test_one_line_moves_on_a_terminal_and_none_in_a_pipe() -> None:
    master, terminal = os.openpty()
    done = subprocess.run(
        [sys.executable, "-c", MOVING], stdout=subprocess.PIPE, stderr=terminal, check=False,
        text=True, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(terminal)
    shown_there = os.read(master, 1 << 16).decode()
    os.close(master)
    assert done.stdout == "on\n"
    assert "goes on [/b]" in shown_there
    assert "a line beside" in shown_there
    # The last thing done is to take the line away.
    assert shown_there.rstrip().endswith("\x1b[2K")
    silent = subprocess.run(
        [sys.executable, "-c", MOVING], capture_output=True, check=False, text=True
    )
    assert (silent.stdout, silent.stderr) == ("on\n", "a line beside\n")


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


# ---- tables that fit ----


def test_numbers_stand_to_the_right_and_empty_rows_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[output.Row] = [
        {"": "p50", "a": "1.00", "b": "12.0 (≈1.20×)"},
        {"": "p99.9", "a": "–", "b": None},
        {"": "verdict", "a": "right in 4 of 4", "b": "–"},
        {"": "p99", "a": "1,234", "b": "1.0%"},
    ]
    lines = table(rows, monkeypatch).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["p50", "verdict", "p99"]
    width = len(lines[2])
    assert lines[1].index("1.00") + 4 == lines[3].index("1,234") + 5
    assert len(lines[1]) == len(lines[3].rstrip()) == len(lines[1].rstrip())
    assert width <= 100


@pytest.mark.parametrize("columns", [3, 12, 30])
def test_a_wide_table_folds_and_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    row: dict[str, object] = {"case": "github-workflow", "vocab": "llama-bpe"}
    row |= {f"sibling p{at}": 1234567.0 + at for at in range(columns)}
    row["verdict"] = "wrong: " + "allows " * 30
    text = table([row], monkeypatch)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert all(f"{1234567 + at:,}" in text for at in range(columns))
    assert text.count("allows") == 30
    # Each block says what it is of.
    assert text.count("github-workflow") >= 1 + (columns > 10)


def test_the_same_time_is_shown_alike_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for ns in (999, 1000, 9_994, 9_996, 12_345, 99_949, 99_960, 123_456, 1_234_567):
        us = shown.microseconds(ns)
        assert shown.cell(us) == shown.number(ns / 1000)
        assert shown.number(ns / 1000) in table([{"us": us}], monkeypatch)
        assert json.loads(json.dumps(us)) == us
