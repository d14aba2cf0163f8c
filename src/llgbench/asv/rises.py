"""Where a series costs more than it did at its best, and for how long.

A level is compared with the best earlier one, not with its neighbour: so ten commits that add 1%
each are one rise of 10%, and what was mended is none. What was accepted is a ground of its own: the
levels after it are compared with it, until the series is back where it was before. Where the ground
is fixed, as by a release, nothing better takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from llgbench.asv.levels import DISTANCE, Level, distance


@dataclass(frozen=True)
class Rule:
    """When one level is worse than another.

    Attributes:
        threshold: the least difference of two costs that matters; 0 for facts.
        exact: every difference is real, as that of two facts is.
    """

    threshold: float
    exact: bool = False

    def worse(self, ground: Level, level: Level) -> bool:
        """Return whether a level is worse than the ground, surely and by enough."""
        if self.exact:
            return level.value > ground.value
        high = level.value - ground.value >= self.threshold
        return high and distance(ground, level) >= DISTANCE

    def better(self, ground: Level, level: Level) -> bool:
        """Return whether a level is surely better than the ground, by however little."""
        if self.exact:
            return level.value < ground.value
        return distance(level, ground) >= DISTANCE

    def above(self, ground: Level, level: Level) -> bool:
        """Return whether a level is surely above the ground, by however little."""
        return self.better(level, ground)


@dataclass(frozen=True)
class Rise:
    """A stretch in which a series is worse than its best.

    Attributes:
        before: position of the last value that was good.
        after: position of the first value at the level that was reached in the end.
        since: position of the first value that was worse.
        until: position of the first value that was good again; None while it lasts.
        old: the good level's value, a cost.
        new: the value of the level reached, a cost.
        decision: which decision accepts it; None where none does.
    """

    before: int
    after: int
    since: int
    until: int | None
    old: float
    new: float
    decision: int | None


# Which decision accepts a rise, by its number: None where none does.
Accepted = Callable[[Rise], int | None]


@dataclass
class _Rise:
    before: int
    old: float
    levels: list[Level] = field(default_factory=list)
    decision: int | None = None

    def shown(self, rule: Rule, until: int | None = None) -> Rise:
        new = self.levels[-1].value
        after = self.levels[-1].first
        for level in reversed(self.levels):
            if level.value < new - rule.threshold / 2:
                break
            after = level.first
        return Rise(self.before, after, self.levels[0].first, until, self.old, new, self.decision)


@dataclass
class _Ground:
    level: Level
    last: int
    rise: _Rise | None = None
    fixed: bool = False


def parted(levels: Sequence[Level], released: int) -> tuple[Level | None, list[Level]]:
    """Return the last level of a release, and what came after it.

    Args:
        levels: of the series, none of which reaches over the release.
        released: how many values the release has.
    """
    before = [level for level in levels if level.last < released]
    return (before[-1] if before else None), list(levels[len(before) :])


def find(
    levels: Sequence[Level],
    rule: Rule,
    accepted: Accepted = lambda _: None,
    limit: Callable[[int], float] = lambda _: math.inf,
    *,
    fixed: Level | None = None,
) -> list[Rise]:
    """Return every rise of a series, oldest first; the last ones may still last.

    Args:
        levels: of the series, in order.
        rule: when a level is worse than another.
        accepted: which decision covers a rise.
        limit: the cost up to which a decision, by its number, accepts.
        fixed: what every level is compared with; the best earlier one where None.
    """
    done: list[Rise] = []
    grounds = [] if fixed is None else [_Ground(fixed, fixed.last, fixed=True)]
    rise: _Rise | None = None
    for level in levels:
        if not grounds:
            grounds.append(_Ground(level, level.last))
            continue
        if rise is not None and not rule.worse(grounds[-1].level, level):
            done.append(rise.shown(rule, level.first))
            rise = None
        while len(grounds) > 1 and not rule.worse(grounds[-2].level, level):
            over = grounds.pop().rise
            assert over is not None
            done.append(over.shown(rule, level.first))
        ground = grounds[-1]
        if rule.worse(ground.level, level):
            if rise is None:
                rise = _Rise(ground.last, ground.level.value)
            rise.levels.append(level)
            rise.decision = accepted(rise.shown(rule))
            if rise.decision is not None:
                # What was accepted, and not what came on top of it since.
                height = limit(rise.decision)
                grounds.append(_Ground(replace(level, value=height), level.last, rise))
                rise = None
        else:
            _stay(ground, level, rule)
    lasting = [ground.rise for ground in grounds] + [rise]
    done += [one.shown(rule) for one in lasting if one is not None]
    return sorted(done, key=lambda one: one.since)


def _stay(ground: _Ground, level: Level, rule: Rule) -> None:
    """Let a level that is not worse than the ground bear on it."""
    if ground.rise is not None:  # what was accepted is what it was
        ground.rise.levels.append(level)
        ground.last = level.last
    elif rule.better(ground.level, level):
        ground.last = level.last
        if not ground.fixed:
            ground.level = level
    elif not rule.above(ground.level, level):
        if not (rule.exact or ground.fixed):
            ground.level = _pooled(ground.level, level)
        ground.last = level.last


def _pooled(a: Level, b: Level) -> Level:
    weight_a, weight_b = 1 / a.error**2, 1 / b.error**2
    weight = weight_a + weight_b
    value = (a.value * weight_a + b.value * weight_b) / weight
    return Level(a.first, b.last, value, math.sqrt(1 / weight))
