"""How values and the text of others are shown, in tables of the console and of Markdown alike.

Text is one line, with nothing hidden in it, read by no markup. Numbers have one form everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

DASH = "–"

# What stands to the right in a table: a number, with what may surround it.
_FIGURE = re.compile(
    r"[≈+−-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?"  # the number
    r"( ?(%|×|[µnm]?s|[KMG]iB|GB|bytes|instructions|tokens|ratio))?"
    r"( to [+−-]?[\d.,]+%?)?"  # an interval
    r"( \(.*\))?"  # a ratio or a remark
)


class Microseconds(float):
    """A time in µs: shown by :func:`number`, as every time is; in JSON a plain number."""


def microseconds(ns: float | None) -> Microseconds | None:
    """Return nanoseconds as microseconds, rounded as they are shown; None stays None."""
    return None if ns is None else Microseconds(round(ns / 1000, _digits(ns / 1000)))


def number(value: float | None) -> str:
    """Return a number with three significant digits, whole from 100 on; a dash for None."""
    return DASH if value is None else f"{value:,.{_digits(value)}f}"


def _digits(value: float) -> int:
    """Return how many digits follow the point."""
    if abs(value) >= 99.95:
        return 0
    return 1 if abs(value) >= 9.995 else 2


def cell(value: Any) -> str:
    """Return a value as a cell of a table; a dash for None."""
    match value:
        case None:
            return DASH
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case Microseconds():
            return number(value)
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
        case str():
            return value
        case Iterable():
            return ", ".join(map(str, value))
    return str(value)


def plural(n: int, what: str) -> str:
    """Return ``1 JSON case`` for (1, ``JSON cases``)."""
    return f"{n} {what.removesuffix('s') if n == 1 else what}"


def is_right(cells: Iterable[str]) -> bool:
    """Return whether a column stands to the right: most of its cells are numbers, or dashes."""
    words = figures = dashes = 0
    for text in cells:
        if _FIGURE.fullmatch(text):
            figures += 1
        elif text == DASH:
            dashes += 1
        elif text:
            words += 1
    return figures > words or (dashes > 0 and not words)


def is_empty(row: Sequence[str]) -> bool:
    """Return whether a row says nothing beyond its name: such a row is left out of a table."""
    return len(row) > 1 and all(text in (DASH, "") for text in row[1:])


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines of Markdown, numbers to the right, without empty rows.

    Args:
        headers: as Markdown; see :func:`in_markdown`.
        rows: the same, as many cells as headers.
    """
    kept = [row for row in rows if not is_empty(row)]
    columns = zip(*kept, strict=True) if kept else [()] * len(headers)
    rules = ["---:" if is_right(column) else "---" for column in columns]
    return [f"| {' | '.join(cells)} |" for cells in (headers, rules, *kept)]


def visible(text: str) -> str:
    """Return text with line breaks, control characters and the like as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else escaped(c) for c in text)


def escaped(character: str) -> str:
    """Return a character as Python's escape of it, such as ``\\\\x1b``."""
    return character.encode("unicode_escape").decode()


def in_markdown(text: str) -> str:
    """Return text for a cell or a title of Markdown: one line, in which no sign means anything."""
    line = visible(" ".join(text.split()))
    for sign in ("\\", "|", "<", "*", "`"):
        line = line.replace(sign, f"\\{sign}")
    return line


def in_code(text: str) -> str:
    """Return text for a code span in a cell of Markdown."""
    shown = text.replace("\n", "⏎").replace("`", "'").replace("|", "\\|")
    return "".join(c if c.isprintable() else "·" for c in shown)


def fence(lines: list[str]) -> str:
    """Return a fence for a code block of Markdown that none of the lines can close."""
    longest = max((len(run) for line in lines for run in _runs(line)), default=0)
    return "`" * max(3, longest + 1)


def _runs(line: str) -> list[str]:
    return "".join(c if c == "`" else " " for c in line).split()
