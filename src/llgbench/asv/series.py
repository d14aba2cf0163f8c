"""Series: what a benchmark found at every commit of a branch, in one machine and environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from llgbench.asv.history import History
from llgbench.asv.results import Benchmark, Measurement, Results


@dataclass(frozen=True, order=True)
class Series:
    """What a value can be compared within.

    Attributes:
        machine: ASV's name for it.
        environment: as ASV names it; another Python or another engine is another environment.
        branch: the commits' branch; empty where no repository tells.
        benchmark: ``module.Class.track_name``.
        parameters: of the benchmark, as one line.
    """

    machine: str
    environment: str
    branch: str
    benchmark: str
    parameters: str


@dataclass(frozen=True)
class Point:
    """What a benchmark found at one commit.

    Attributes:
        commit: its hash.
        date_ms: of the commit, milliseconds since 1970.
        value: in the benchmark's unit.
        error: the standard error of the value; None where nothing is known of it.
    """

    commit: str
    date_ms: int
    value: float
    error: float | None


def collect(
    results: Sequence[Results],
    known: dict[str, Benchmark],
    history: History,
    carry: Callable[[Measurement], Measurement | None] = lambda _: None,
) -> dict[Series, list[Point]]:
    """Return every series with its points, in the order of the commits.

    What an earlier version of a benchmark measured is another quantity and is left out, unless it
    can be carried over. So is a benchmark that the index no longer lists; without an index its
    newest version counts.

    Args:
        results: as read.
        known: ASV's index of benchmarks.
        history: the order of commits. Without one it is that of their dates, and of two commits in
            one second that of their measurement.
        carry: returns what an earlier version measured as one of today's; None where it cannot.
    """
    found: dict[Series, dict[str, tuple[tuple[int, ...], Results, Measurement]]] = {}
    for one in results:
        for measured in one.measurements:
            if measured.value is None or (known and measured.benchmark not in known):
                continue
            wanted = known[measured.benchmark].version if known else None
            if None not in (wanted, measured.version) and measured.version != wanted:
                carried = carry(measured)
                if carried is None:
                    continue
                measured = carried
            series = Series(
                one.machine, one.environment, history.branch(one.commit),
                measured.benchmark, ", ".join(measured.parameters),
            )  # fmt: skip
            place = (history.position(one.commit), one.date_ms, measured.started_ms)
            points = found.setdefault(series, {})
            # A commit measured twice, in two folders, counts as it was measured last.
            if one.commit not in points or points[one.commit][0] <= place:
                points[one.commit] = (place, one, measured)
    series_of = {}
    for series, points in found.items():
        ordered = [points[commit] for commit in sorted(points, key=lambda c: (points[c][0], c))]
        version = ordered[-1][2].version
        series_of[series] = [
            Point(one.commit, one.date_ms, measured.value, measured.error)
            for _, one, measured in ordered
            if measured.value is not None and (known or measured.version == version)
        ]
    return series_of


def beside(series: Series, benchmark: str | None) -> Series | None:
    """Return the series of another benchmark of the same place; None of no benchmark."""
    return None if benchmark is None else replace(series, benchmark=benchmark)
