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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from llgbench import layout
from llgbench.errors import FileError
from llgbench.shown import cell, escaped, is_empty, visible

# Exit statuses, the same in every command: something is not as it should be; unusable input; a
# defect of llgbench itself (EX_SOFTWARE of sysexits.h).
EXIT_DIFFERENCE = 1
EXIT_BAD_INPUT = 2
EXIT_DEFECT = 70

json_option = click.option("--json", "as_json", is_flag=True, help="Write the table as JSON.")

Row = Mapping[str, Any]

# Of a table in a pipe, which has no width of its own.
_WIDTH = 100

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

    Numbers stand to the right, None is shown as a dash, and a row of dashes alone is left out. A
    table is no wider than the terminal, or than 100 columns in a pipe: text is folded, and what
    still has no room stands below, under the same first columns. Nothing is cut.
    """
    if as_json:
        print_json([dict(row) for row in rows])
        return
    if title:
        echo(visible(title))
    # In one piece, and by our own hand: rich ends the process where the reader has gone.
    shown = io.StringIO()
    console = _console(shown)
    names = list(rows[0]) if rows else []
    cells = [[visible(cell(row.get(name))) for name in names] for row in rows]
    columns = layout.columns(names, [row for row in cells if not is_empty(row)])
    for number, block in enumerate(layout.blocks(columns, console.width)):
        if number:
            console.print()
        table = Table(box=None, pad_edge=False, padding=(0, layout.GAP, 0, 0))
        for column, width in block:
            side: Literal["right", "left"] = "right" if column.right else "left"
            table.add_column(
                Text(column.name), justify=side, overflow="fold", min_width=width, max_width=width
            )
        for row in zip(*(column.cells for column, _ in block), strict=True):
            table.add_row(*map(Text, row))
        console.print(table)
    echo("\n".join(line.rstrip() for line in shown.getvalue().splitlines()))


def say(line: str) -> None:
    """Write a line, or several, on stderr; where that is full or gone, nobody reads it."""
    with suppress(OSError):
        print("\n".join(map(visible, line.split("\n"))), file=sys.stderr, flush=True)


@contextmanager
def moving(what: str) -> Iterator[Callable[[str], None]]:
    """Show one line on stderr that changes, with the time, for the time of the block.

    Silent where stderr is no terminal, as steps are: a log has no use for it.

    Yields:
        What changes the line.
    """
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    ) as progress:  # fmt: skip
        task = progress.add_task(visible(what), total=None)
        yield lambda line: progress.update(task, description=visible(line))


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
    return Console(
        file=file,
        width=None if terminal else _WIDTH,
        force_terminal=terminal,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
    )
