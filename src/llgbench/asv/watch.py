"""One series under watch: its alerts, new, accepted and closed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from llgbench.asv import levels, metrics, rises
from llgbench.asv.alert import Alert, State, Subject
from llgbench.asv.decisions import Decision
from llgbench.asv.levels import Level
from llgbench.asv.series import Point, Series


@dataclass(frozen=True)
class Watch:
    """What is looked for in one series."""

    series: Series
    metric: metrics.Metric
    threshold: float

    @property
    def subject(self) -> Subject:
        """What a decision about this series refers to."""
        s = self.series
        return ("asv", s.machine, s.environment, s.branch, s.benchmark, s.parameters)

    @property
    def fact(self) -> bool:
        """Whether every change is real."""
        return self.metric.kind == "fact"

    @property
    def rule(self) -> rises.Rule:
        """When one level of the series is worse than another."""
        return rises.Rule(0.0 if self.fact else math.log1p(self.threshold), exact=self.fact)

    def usable(self, point: Point) -> bool:
        """Return whether a value can be compared: no time or ratio is zero or below."""
        return self.fact or point.value > 0

    def cost(self, value: float) -> float:
        """Return a value as a cost: up is worse, and a difference a relative change."""
        return self.metric.cost(value if self.fact else math.log(value))

    def value(self, cost: float) -> float:
        """Return the value of a cost; the inverse of :meth:`cost`."""
        value = self.metric.cost(cost)
        return value if self.fact else math.exp(value)

    def levels(self, points: Sequence[Point], bound: int = 0) -> list[Level]:
        """Return the levels of the series, in costs; none reaches over a bound."""
        costs = [self.cost(point.value) for point in points]
        if self.fact:
            return levels.runs(costs, bound)
        # What was measured beside a fixed engine is as unsure as its samples say; of a time they
        # know only the minute in which they were taken.
        alone = self.metric.kind != "ratio"
        errors = [
            None if alone or point.error is None else point.error / point.value for point in points
        ]
        return levels.find(costs, errors, bound)

    def alerts(
        self, points: Sequence[Point], decided: Sequence[Decision], released: int = 0
    ) -> Iterator[Alert]:
        """Yield the alerts of the series in every state.

        Args:
            points: usable ones, in order.
            decided: the decisions about this series.
            released: how many points a release has; the last level among them is what the others
                are compared with. With 0 it is the best earlier level.
        """
        places = {point.commit: position for position, point in enumerate(points)}
        found = self.levels(points, released)
        fixed, later = rises.parted(found, released)
        accepting = _accepting(decided, places, self)
        for rise in rises.find(later, self.rule, *accepting, fixed=fixed):
            reason = "" if rise.decision is None else decided[rise.decision].reason
            yield self._alert(points, rise, reason)
        if self.fact:
            yield from self._better(points, found if fixed is None else [fixed, *later])

    def _better(self, points: Sequence[Point], found: Sequence[Level]) -> Iterator[Alert]:
        """Yield the facts that became better than they had ever been."""
        best = math.inf
        for before, level in itertools.pairwise(found):
            best = min(best, before.value)
            if level.value < best:
                rise = rises.Rise(
                    before.last, level.first, level.first, None, before.value, level.value, None
                )
                yield self._alert(points, rise, "", "better")

    def _alert(
        self, points: Sequence[Point], rise: rises.Rise, reason: str, state: State | None = None
    ) -> Alert:
        s = self.series
        lasting: State = "new" if rise.decision is None else "accepted"
        stop = len(points) if rise.until is None else rise.until
        return Alert(
            source="asv", machine=s.machine, environment=s.environment, branch=s.branch,
            benchmark=s.benchmark, parameters=s.parameters,
            before=points[rise.before].commit,
            after=points[rise.after].commit,
            old=self.value(rise.old),
            new=self.value(rise.new),
            unit=self.metric.unit,
            state=state or (lasting if rise.until is None else "closed"),
            since=_day(points[rise.since].date_ms),
            until="" if rise.until is None else points[rise.until].commit,
            commits=stop - rise.since,
            reason=reason,
        )  # fmt: skip


def _accepting(
    decided: Sequence[Decision], places: Mapping[str, int], watch: Watch
) -> tuple[Callable[[rises.Rise], int | None], Callable[[int], float]]:
    """Return which decision covers a rise, and the cost up to which a decision accepts."""
    # What lies no higher than the accepted level, but for what is below the threshold anyway.
    slack = watch.rule.threshold
    usable = [
        (number, places[one.before], places[one.after], watch.cost(one.new))
        for number, one in enumerate(decided)
        if one.before in places and one.after in places and (watch.fact or one.new > 0)
    ]

    def covering(rise: rises.Rise) -> int | None:
        for number, before, after, cost in usable:
            touching = max(before, rise.before) <= min(after, rise.after)
            if touching and rise.new <= cost + slack:
                return number
        return None

    limits = {number: cost for number, _, _, cost in usable}
    return covering, limits.__getitem__


def _day(date_ms: int) -> str:
    return f"{datetime.fromtimestamp(date_ms / 1000, UTC):%Y-%m-%d}"
