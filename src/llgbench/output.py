"""How the command line speaks: results on stdout, progress on stderr, tables as text or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

# Exit statuses, the same in every command: something is not as it should be; unusable input.
EXIT_DIFFERENCE = 1
EXIT_BAD_INPUT = 2

json_option = click.option("--json", "as_json", is_flag=True, help="Write the table as JSON.")

Row = Mapping[str, Any]


def print_json(data: Any) -> None:
    """Write data as JSON on stdout."""
    json.dump(data, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def print_table(rows: Sequence[Row], *, title: str = "", as_json: bool = False) -> None:
    """Write rows as a table, or as a JSON list of objects; the keys of the first row are columns.

    Numbers stand to the right, None is shown as a dash. In a pipe nothing is cut or coloured.
    """
    if as_json:
        print_json([dict(row) for row in rows])
        return
    if title:
        print(title)  # a table's own title is folded to the table's width
    table = Table(box=None, pad_edge=False)
    columns = list(rows[0]) if rows else []
    for name in columns:
        numeric = all(_is_number(row.get(name)) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    _console().print(table)


def say(line: str) -> None:
    """Write one line on stderr."""
    print(line, file=sys.stderr, flush=True)


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
        self._progress.update(self._task, description=what)

    def done(self, n: int = 1) -> None:
        """Count steps as done."""
        self._progress.advance(self._task, n)


@contextmanager
def steps(total: int, what: str) -> Iterator[Steps]:
    """Show a progress bar on stderr for the time of the block; silent where it is no terminal."""
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    ) as progress:  # fmt: skip
        yield Steps(progress, total, what)


def microseconds(ns: float | None) -> float | None:
    """Return nanoseconds as microseconds with three significant digits; None stays None."""
    return None if ns is None else float(f"{ns / 1000:.3g}")


def _console() -> Console:
    # A pipe has no width; what is written there must not be folded to 80 columns.
    return Console(width=None if sys.stdout.isatty() else 10_000, highlight=False)


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
