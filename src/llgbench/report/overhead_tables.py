"""What the greedy lexeme fallback costs, as tables of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llgbench.fallback import summary
from llgbench.report.table import Table
from llgbench.shown import cell

_OVERHEAD = {
    "summary": summary.TITLE,
    "ratios": "Where no boundary is pending: off over stock, on over off, instructions",
    "pending": "Masks with a boundary pending, and of its two readings alone, instructions",
    "checkpoints": "Checkpoints: a step in instructions and work, by n",
    "memory": "A boundary pending over n bytes: bytes of heap",
}


def overhead_tables(found: Mapping[str, Any]) -> list[Table]:
    """Return what overhead_summary.load gives as tables, the summary first."""
    notes = {
        "summary": f"The worst of its rows, on {found.get('vocab')}: `llgbench overhead --count`, "
        f"llgbench {found.get('provenance', {}).get('llgbench')}.",
        "ratios": "Means over seeds; spread is the largest distance of one seed from its mean.",
    }
    tables = []
    for name, title in _OVERHEAD.items():
        rows = found.get(name)
        if not rows:
            continue
        headers = tuple(rows[0])
        tables.append(
            Table(
                name="fallback",
                title=title,
                headers=headers,
                rows=tuple(tuple(cell(row.get(h)) for h in headers) for row in rows),
                data=tuple(rows),
                notes=(notes[name],) if name in notes else (),
            )
        )
    return tables
