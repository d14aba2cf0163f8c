"""Rows as a Markdown table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llgbench.shown import in_markdown


def table(rows: Sequence[Mapping[str, Any]], texts: Collection[str]) -> list[str]:
    """Return the lines of a table; the keys of the first row are its columns.

    Args:
        rows: numbers, None where there is none, and texts.
        texts: columns that are no numbers.
    """
    if not rows:
        return []
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |"]
    lines.append("|" + "|".join("---" if name in texts else "--:" for name in columns) + "|")
    for row in rows:
        lines.append("| " + " | ".join(_cell(row[name]) for name in columns) + " |")
    return lines


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return in_markdown(str(value))
