"""Rows of a record as a Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llgbench.shown import DASH, cell, in_markdown, markdown_table, number


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table; the keys of the first row are its columns."""
    if not rows:
        return []
    return markdown_table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows])


def _cell(value: Any) -> str:
    shown = number(value) if isinstance(value, float) else cell(value)
    return in_markdown(shown) or DASH
