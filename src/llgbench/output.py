"""How the command line speaks: results on stdout, progress on stderr, tables as text or JSON.

What comes from files is shown as it is: no markup is read in it, and what would move a terminal's
cursor stands escaped.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from llgbench.errors import FileError
from llgbench.shown import escaped, visible

# Exit statuses, the same in every command: something is not as it should be; unusable input; a
# defect of llgbench itself (EX_SOFTWARE of sysexits.h).
EXIT_DIFFERENCE = 1
EXIT_BAD_INPUT = 2
EXIT_DEFECT = 70

json_option = click.option("--json", "as_json", is_flag=True, help="Write the table as JSON.")

Row = Mapping[str, Any]

# What our own words need beyond ASCII, as it is written where a stream cannot encode it.
_PLAIN = {
    "µ": "u", "–": "-", "—": "-", "→": "->", "≈": "~", "×": "x", "±": "+-", "…": "...",
    "⏎": "\\n", "·": ".", "“": '"', "”": '"', "’": "'",
}  # fmt: skip


def prepare_streams() -> None:
    """Let stdout and stderr take every text, whatever they are encoded in; done once, at start."""
    codecs.register_error("llgbench.plain", _plainly)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed; a file opened later must not take its number
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="llgbench.plain")


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c) or escaped(c) for c in lost), error.end


def print_json(data: Any) -> None:
    """Write data as JSON on stdout."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(data, indent=2)  # JSON has its own escapes
    echo(text)


def echo(text: str = "") -> None:
    """Write text and a line's end on stdout.

    Raises:
        FileError: stdout is full.
        BrokenPipeError: its reader has gone.
    """
    with _to_stdout():
        print(text, flush=True)


def flush() -> None:
    """Write what is still to be written on stdout.

    Raises:
        FileError, BrokenPipeError: as echo.
    """
    with _to_stdout():
        sys.stdout.flush()


@contextmanager
def _to_stdout() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_stdout()
        raise FileError(f"cannot write to standard output: {error.strerror}") from None


def drop_stdout() -> None:
    """Send what is still to be written nowhere, so that the interpreter's end does not try it."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_table(rows: Sequence[Row], *, title: str = "", as_json: bool = False) -> None:
    """Write rows as a table, or as a JSON list of objects; the keys of the first row are columns.

    Numbers stand to the right, None is shown as a dash. In a pipe nothing is cut or coloured.
    """
    if as_json:
        print_json([dict(row) for row in rows])
        return
    if title:
        echo(visible(title))  # a table's own title is folded to the table's width
    table = Table(box=None, pad_edge=False)
    columns = list(rows[0]) if rows else []
    for name in columns:
        numeric = all(_is_number(row.get(name)) for row in rows)
        table.add_column(
            Text(visible(name)), justify="right" if numeric else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(visible(_cell(row.get(name)))) for name in columns))
    # In one piece, and by our own hand: rich ends the process where the reader has gone.
    shown = io.StringIO()
    _console(shown).print(table)
    echo(shown.getvalue().removesuffix("\n"))


def say(line: str) -> None:
    """Write a line, or several, on stderr; where that is full or gone, nobody reads it."""
    with suppress(OSError):
        print("\n".join(map(visible, line.split("\n"))), file=sys.stderr, flush=True)


def quiet_say(line: str) -> None:
    """Write one line of progress on stderr where that is a terminal."""
    if sys.stderr.isatty():
        say(line)


class Steps:
    """Progress over a known number of steps."""

    def __init__(self, progress: Progress, total: int, what: str) -> None:
        """Begin; use :func:`steps`."""
        self._progress = progress
        self._task = progress.add_task(what, total=total)

    def doing(self, what: str) -> None:
        """Show what is being done."""
        self._progress.update(self._task, description=visible(what))

    def done(self, n: int = 1) -> None:
        """Count steps as done."""
        self._progress.advance(self._task, n)


@contextmanager
def steps(total: int, what: str) -> Iterator[Steps]:
    """Show a progress bar on stderr for the time of the block; silent where it is no terminal."""
    with Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    ) as progress:  # fmt: skip
        yield Steps(progress, total, what)


def _console(file: io.StringIO) -> Console:
    terminal = sys.stdout.isatty()
    # A pipe has no width; what is written there must not be folded to 80 columns.
    return Console(
        file=file,
        width=None if terminal else 10_000,
        force_terminal=terminal,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
    )


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
        case str() | int():
            return str(value)
        case Iterable():
            return ", ".join(map(str, value))
    return str(value)
