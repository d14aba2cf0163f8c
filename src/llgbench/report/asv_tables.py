"""What ASV measured, as tables of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from llgbench.asv.results import AsvValue
from llgbench.report.table import Table
from llgbench.shown import number, plural

_MISSING = {
    "n/a": "n/a, the benchmark does not apply or its sample does not carry the percentile",
    "failed": "failed; asv run --show-stderr says why",
}


def asv_tables(values: Sequence[AsvValue]) -> list[Table]:
    """Return a table per machine and commit that ASV has values of.

    What has no value is in the table's data and counted in a note, but has no row.
    """
    found = []
    for machine, commit in dict.fromkeys((v.machine, v.commit) for v in values):
        here = [v for v in values if (v.machine, v.commit) == (machine, commit)]
        missing = Counter(v.missing for v in here if v.missing)
        found.append(
            Table(
                name="asv",
                title=f"ASV: {machine}, commit {commit[:12]}",
                headers=("benchmark", "parameters", "value"),
                rows=tuple(
                    (v.benchmark, " | ".join(v.parameters), with_unit(v.value, v.unit))
                    for v in here
                    if not v.missing
                ),
                data=tuple({**vars(v), "parameters": list(v.parameters)} for v in here),
                notes=tuple(
                    f"{plural(n, 'values')} more: {_MISSING[why]}" for why, n in missing.items()
                ),
            )
        )
    return found


def with_unit(value: float | None, unit: str) -> str:
    """Return a value of ASV as text; empty where there is none."""
    if value is None:
        return ""
    match value, unit:
        case seconds, "seconds":
            return f"{number(seconds * 1e6)} µs"
        case ns, "ns" | "nanoseconds":
            return f"{number(ns / 1e3)} µs"
        case size, "bytes":
            return f"{number(size / 2**20)} MiB"
    shown = f"{value:,.0f}" if float(value).is_integer() else number(value)  # a count is whole
    return f"{shown} {unit}".rstrip()
