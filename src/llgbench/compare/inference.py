"""What can be concluded from ratios: intervals, tests, the false discovery rate, verdicts.

Pure functions on numbers; randomness comes in as an argument. The unit is the process: a process
draws its own address layout and hash seeds, so only whole processes are independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Word = Literal["slower", "faster", "same", "unclear"]

# Fewer processes say too little of the next one for any verdict.
MIN_PROCESSES = 5

# The share of processes left out at either end.
TRIM = 0.2

# Of a mean of logarithms: below this it is rounding.
_NO_ERROR = 1e-12

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A ratio head / base over processes.

    Attributes:
        ratio: the trimmed geometric mean of the processes' ratios; above 1 the head costs more.
        low: lower end of the 95% interval.
        high: upper end.
        p: two-sided, that the true ratio is no further from 1 than the threshold.
        spread: standard deviation of one process's log ratio.
        processes: how many there were.
    """

    ratio: float
    low: float
    high: float
    p: float
    spread: float
    processes: int


def estimate(
    ratios: Sequence[float] | Floats,
    threshold: float,
    random: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = 4000,
) -> Estimate:
    """Estimate a ratio from one ratio a process.

    The location is the mean of the logarithms without the lowest and the highest fifth: on a
    shared machine one process in ten is disturbed on one side alone, and such a ratio would
    outweigh all others. The interval is a symmetric bootstrap-t: processes are drawn again with
    replacement, and each draw is measured in its own standard errors, which keeps its level where
    the plain percentile bootstrap is too narrow (few processes). The test is Yuen's, against a
    change of the threshold rather than against none: what is smaller is of no interest, found or
    not.

    Args:
        ratios: head / base, positive, one a process; at least two.
        threshold: the smallest relative change of interest, such as 0.02.
        random: draws the resamples.
        level: of the interval.
        resamples: how many are drawn; with 0 nothing is trimmed and the interval
            is Student's, which two numbers carry.
    """
    logs = np.log(np.asarray(ratios, float))
    n = len(logs)
    if n < 2:
        raise ValueError("an interval needs two processes at least")
    spread = float(logs.std(ddof=1))
    trim = TRIM if resamples else 0.0
    means, errors = _trimmed(logs[None, :], trim)
    mean, error = float(means[0]), float(errors[0])
    freedom = n - 2 * int(trim * n) - 1
    p = beyond(ratios, threshold, trim)
    if error < _NO_ERROR:  # counts may repeat to the last instruction
        ratio = math.exp(mean)
        return Estimate(ratio, ratio, ratio, p, 0.0, n)
    if resamples:
        draws = logs[random.integers(0, n, (resamples, n))]
        means, errors = _trimmed(draws, trim)
        # A draw of one process many times has no error to be measured in.
        usable = errors > 0.1 * error
        reach = float(np.quantile(np.abs(means[usable] - mean) / errors[usable], level))
    else:
        reach = student_quantile((1 - level) / 2, freedom)
    return Estimate(
        math.exp(mean),
        math.exp(mean - reach * error),
        math.exp(mean + reach * error),
        p,
        spread,
        n,
    )


def beyond(ratios: Sequence[float] | Floats, threshold: float, trim: float) -> float:
    """Return the two-sided p that the true ratio is no further from 1 than the threshold.

    Args:
        ratios: head / base, positive, one a process; at least two.
        threshold: the smallest relative change of interest.
        trim: the share left out at either end.
    """
    logs = np.log(np.asarray(ratios, float))
    n = len(logs)
    means, errors = _trimmed(logs[None, :], trim)
    mean, error = float(means[0]), float(errors[0])
    up, down = math.log1p(threshold), math.log1p(-threshold)
    if error < _NO_ERROR:
        return 0.0 if mean > up or mean < down else 1.0
    freedom = n - 2 * int(trim * n) - 1
    above, below = (mean - up) / error, (down - mean) / error
    return min(1.0, 2 * min(student_tail(above, freedom), student_tail(below, freedom)))


def _trimmed(draws: Floats, trim: float) -> tuple[Floats, Floats]:
    """Return the trimmed mean of each row and its standard error (Yuen's, winsorized)."""
    n = draws.shape[1]
    cut = int(trim * n)
    ordered = np.sort(draws, axis=1)
    kept = ordered[:, cut : n - cut]
    winsorized = np.clip(ordered, kept[:, :1], kept[:, -1:])
    errors = winsorized.std(axis=1, ddof=1) / ((1 - 2 * cut / n) * math.sqrt(n))
    return kept.mean(axis=1), errors


def student_tail(t: float, freedom: int) -> float:
    """Return the probability that Student's t with so many degrees of freedom exceeds ``t``.

    The finite series for whole degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4).
    """
    theta = math.atan(t / math.sqrt(freedom))
    cos2 = math.cos(theta) ** 2
    term, total = 1.0, 1.0
    first = 3 if freedom % 2 else 2
    for k in range(first, freedom - 1, 2):
        term *= (k - 1) / k * cos2
        total += term
    if freedom % 2 == 0:
        inside = math.sin(theta) * total
    elif freedom == 1:
        inside = 2 / math.pi * theta
    else:
        inside = 2 / math.pi * (theta + math.sin(theta) * math.cos(theta) * total)
    return min(max(0.5 * (1 - inside), 0.0), 1.0)


def student_quantile(tail: float, freedom: int) -> float:
    """Return the t that :func:`student_tail` gives this probability, below 0.5; by bisection."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > tail else (low, middle)
    return (low + high) / 2


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Return q-values: calling all with q ≤ r discoveries holds the false discovery rate at r."""
    n = len(p)
    order = sorted(range(n), key=lambda i: p[i])
    q = [1.0] * n
    least = 1.0
    for rank in range(n, 0, -1):
        i = order[rank - 1]
        least = min(least, p[i] * n / rank)
        q[i] = least
    return q


def spend(rate: float, look: int) -> float:
    """Return the share of the error rate that the ``look``-th look at the data (from 1) may use.

    Looking again after every few processes gives chance as many opportunities; the shares
    1/2, 1/6, 1/12, … sum to one, however often one looks.
    """
    return rate / (look * (look + 1))


def verdicts(
    estimates: Sequence[Estimate], threshold: float, rate: float, least: int = MIN_PROCESSES
) -> list[Word]:
    """Return a verdict for every row of a table, with its false discovery rate held.

    ``slower`` and ``faster`` need the interval beyond the threshold and a q-value within the
    rate; ``same`` needs the whole interval within the threshold; what is left is ``unclear``, as
    is everything from fewer than ``least`` processes.
    """
    q = benjamini_hochberg([e.p for e in estimates])
    return [
        _verdict(e, value, threshold, rate) if e.processes >= least else "unclear"
        for e, value in zip(estimates, q, strict=True)
    ]


def _verdict(e: Estimate, q: float, threshold: float, rate: float) -> Word:
    if q <= rate and e.low > 1 + threshold:
        return "slower"
    if q <= rate and e.high < 1 - threshold:
        return "faster"
    if e.low >= 1 - threshold and e.high <= 1 + threshold:
        return "same"
    return "unclear"


def smallest_visible(e: Estimate, threshold: float, rows: int, rate: float) -> float:
    """Return the smallest relative change of one row that a comparison like this likely calls.

    That is in four of five, where no other row of the table changes: of so many rows, one alone has
    to be the surer for the false discovery rate to hold.

    Args:
        e: the row's.
        threshold: the smallest relative change of interest.
        rows: of the table.
        rate: its false discovery rate.
    """
    freedom = e.processes - 2 * int(TRIM * e.processes) - 1
    error = math.log(e.high / e.low) / 2 / student_quantile(0.025, freedom)
    # The error of few processes is mostly too small.
    error *= 1 + 1 / freedom
    alone = student_quantile(min(rate / rows, 0.05) / 2, freedom)
    return math.expm1(math.log1p(threshold) + (alone + student_quantile(0.2, freedom)) * error)
