"""A table of the report, and how it is written as Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llgbench.shown import in_markdown, markdown_table


@dataclass(frozen=True)
class Table:
    """One table, ready to be shown, and the same as plain data.

    Attributes:
        name: what kind of table: headline, cases, checkpoints, details, unavailable, asv or
            fallback.
        title: one line.
        headers: one per column.
        rows: as text, as many cells as headers.
        data: the same as plain data, unrounded, for JSON.
        notes: what only this table needs to have said.
    """

    name: str
    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    data: tuple[dict[str, Any], ...]
    notes: tuple[str, ...] = ()

    def markdown(self) -> list[str]:
        """Return the table's grid as lines of Markdown, without its title and notes."""
        rows = [tuple(map(in_markdown, row)) for row in self.rows]
        return markdown_table(tuple(map(in_markdown, self.headers)), rows)
