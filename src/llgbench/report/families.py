"""Families of cases: what a step costs by their parameter, such as the n of ``checkpoint@n``."""

from __future__ import annotations

from dataclasses import dataclass

from llgbench.records.times import label
from llgbench.report.frames import microseconds
from llgbench.report.view import Column, View


def families(view: View, vocab: str) -> dict[str, list[tuple[int, str]]]:
    """Return the families measured on a vocab: their members as (n, case), ascending."""
    found: dict[str, list[tuple[int, str]]] = {}
    for case in view.cases(vocab):
        value = view.value(case)
        if value is not None:
            # A folder's path may have an @ of its own.
            found.setdefault(case.rpartition("@")[0] or case, []).append((value, case))
    return {family: sorted(members) for family, members in found.items()}


@dataclass(frozen=True)
class FamilyPoint:
    """One member of a family under one column; times in µs, cold TBM of a step."""

    n: int
    verdict: str
    p50_us: float | None
    max_us: float | None
    samples: int


def family_points(view: View, family: str, vocab: str, column: Column) -> list[FamilyPoint]:
    """Return the points of one line: what a step costs by n."""
    found = []
    for n, case in families(view, vocab)[family]:
        entry = view.entry(case, vocab, column)
        if entry is None or entry.unavailable is not None:
            continue
        times = view.times([entry], "cold", "tbm")
        found.append(
            FamilyPoint(
                n, label(entry), microseconds(times, "p50"), microseconds(times, "p100"), len(times)
            )
        )
    return found
