"""A series of values as levels: where they begin and end, how high they are, how sure that is.

Pure functions on arrays in commit order. A value is a cost: the logarithm of a time or a ratio,
negated where more is better, so that up is always worse and a difference is a relative change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# The distance in standard errors that parts two levels. Every night looks again at dozens of
# series, so chance gets thousands of opportunities: docs/ci.md has what this one leaves it.
DISTANCE = 5.0

# Of fewer values the spread cannot be told from the values themselves.
MIN_VALUES = 8

# The spread of a lone time, relative: nothing but the machine's load moved single measurements by
# so much on a busy machine of two cores.
UNKNOWN_SPREAD = 0.3

# The spread between the builds of two commits that differ in nothing that matters, where the
# values are too few to show it.
BUILD_SPREAD = 0.01

# No measurement of ours repeats itself better; counts of instructions come near.
LEAST_SPREAD = 0.002


@dataclass(frozen=True)
class Level:
    """Neighbouring values that differ by chance alone.

    Attributes:
        first: position of the first value.
        last: position of the last value; outliers between the two are not counted.
        value: the mean, a cost.
        error: its standard error.
    """

    first: int
    last: int
    value: float
    error: float


def find(
    values: Sequence[float] | Floats, errors: Sequence[float | None], bound: int = 0
) -> list[Level]:
    """Split a series into levels by penalized least squares.

    The split is the one with the least sum of squares, in units of the values' own spread, plus
    DISTANCE² for each level: a level that differs by less from its neighbours is not worth its
    price. It is found exactly, by dynamic programming.

    Args:
        values: costs.
        errors: the standard error of each; None where it is unknown. Only where all are known can
            a level be a single value: a single time may be the minute's load.
        bound: no level reaches over this position; 0 for none.
    """
    costs = np.asarray(values, float)
    known = bool(errors) and all(error is not None for error in errors)
    spread = spread_of(costs, [error for error in errors if error is not None] if known else None)
    kept = np.flatnonzero(~_outliers(costs, spread, ends=not known))
    least = 1 if known else 2
    weights = 1 / spread[kept] ** 2
    cut = int(np.searchsorted(kept, bound))
    parts = _split(costs[kept[:cut]], weights[:cut], least)
    parts += [(a + cut, b + cut) for a, b in _split(costs[kept[cut:]], weights[cut:], least)]
    found = []
    for start, stop in parts:
        weight = float(weights[start:stop].sum())
        mean = float((weights[start:stop] * costs[kept[start:stop]]).sum()) / weight
        found.append(Level(int(kept[start]), int(kept[stop - 1]), mean, math.sqrt(1 / weight)))
    return found


def runs(values: Sequence[float], bound: int = 0) -> list[Level]:
    """Return the runs of equal values as levels without an error, as those of facts are.

    Args:
        values: costs.
        bound: no run reaches over this position; 0 for none.
    """
    found: list[Level] = []
    for position, value in enumerate(values):
        if found and found[-1].value == value and position != bound:
            found[-1] = replace(found[-1], last=position)
        else:
            found.append(Level(position, position, value, 0.0))
    return found


def distance(a: Level, b: Level) -> float:
    """Return how far ``b`` lies above ``a``, in standard errors of the difference."""
    return (b.value - a.value) / math.hypot(a.error, b.error)


def spread_of(costs: Floats, errors: Sequence[float] | None) -> Floats:
    """Return the standard deviation of each value.

    How far neighbours lie apart tells it: the median of their differences does not see steps, and
    a slow rise adds little to it. What is known of each value alone is the least it can be.
    """
    if len(costs) >= MIN_VALUES:
        apart = np.abs(np.diff(costs))
        # A median of few is often too small by chance; a spread too small makes alerts of nothing.
        common = float(np.median(apart)) * 1.4826 / math.sqrt(2) * (1 + 6 / len(apart))
        common = max(common, LEAST_SPREAD)
    else:
        common = BUILD_SPREAD if errors is not None else UNKNOWN_SPREAD
    if errors is None:
        return np.full(len(costs), common)
    # A value of which nothing is known still has a weight.
    return np.clip(errors, common, 1e3)


def _outliers(costs: Floats, spread: Floats, *, ends: bool) -> npt.NDArray[np.bool_]:
    """Return which values stand alone: beyond both neighbours, on the same side, by DISTANCE.

    Args:
        costs: in order.
        spread: of each.
        ends: the first and the last value, which have one neighbour, stand alone as well.
    """
    n = len(costs)
    alone = np.zeros(n, bool)
    if n < 3:
        return alone
    before, after = costs[1:-1] - costs[:-2], costs[1:-1] - costs[2:]
    nearer = np.minimum(np.abs(before), np.abs(after))
    alone[1:-1] = (before * after > 0) & (nearer > DISTANCE * spread[1:-1])
    if ends:
        alone[0] = abs(costs[0] - costs[1]) > DISTANCE * spread[0]
        alone[-1] = abs(costs[-1] - costs[-2]) > DISTANCE * spread[-1]
    return alone


def _split(costs: Floats, weights: Floats, least: int) -> list[tuple[int, int]]:
    """Return the parts of the best split, as half-open ranges of at least ``least`` values."""
    n = len(costs)
    if n < least:
        return []
    costs = costs - np.median(costs)  # the squares of what is left lose no digits
    zero = np.zeros(1)
    w = np.concatenate([zero, np.cumsum(weights)])
    s = np.concatenate([zero, np.cumsum(weights * costs)])
    q = np.concatenate([zero, np.cumsum(weights * costs**2)])
    best = np.full(n + 1, np.inf)
    best[0] = 0.0
    start = np.zeros(n + 1, int)
    for stop in range(least, n + 1):
        begin = np.arange(stop - least + 1)
        squares = (q[stop] - q[begin]) - (s[stop] - s[begin]) ** 2 / (w[stop] - w[begin])
        total = best[begin] + np.maximum(squares, 0.0) + DISTANCE**2
        start[stop] = int(np.argmin(total))
        best[stop] = total[start[stop]]
    parts = []
    stop = n
    while stop > 0:
        parts.append((int(start[stop]), stop))
        stop = int(start[stop])
    return parts[::-1]
