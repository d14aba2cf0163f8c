"""Ratios to one reference engine, carried over to another: a new wheel keeps the history.

A history is of ratios commit / reference. Another reference begins it anew, unless some commit was
measured with both: its two ratios say how the references stand to each other, and with that every
earlier ratio is one to the new reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llgbench.errors import CompareError


@dataclass(frozen=True)
class Link:
    """How an old reference stands to a new one.

    Attributes:
        factor: what takes a ratio to the old reference to one to the new.
        error: standard error of its logarithm; every carried ratio has it beside its own, and all
            have the same, so that differences among carried ratios do not have it.
        commits: those that were measured with both.
    """

    factor: float
    error: float
    commits: tuple[str, ...]


def link(old: Mapping[str, Sequence[float]], new: Mapping[str, Sequence[float]]) -> Link:
    """Return the link between two references, from every commit that was measured with both.

    Args:
        old: commit / old reference, one ratio per process, by commit; positive.
        new: commit / new reference, the same.

    Raises:
        CompareError: no commit was measured with both, in two processes at least.
    """
    both = tuple(c for c in old if len(old[c]) > 1 and len(new.get(c, ())) > 1)
    if not both:
        raise CompareError(
            "no commit was measured with both reference engines; measure one with the old and the "
            "new, the newest for instance, and the history goes on"
        )
    logs, variances = [], []
    for commit in both:
        of_old, of_new = np.log(old[commit]), np.log(new[commit])
        # The median, as everywhere: one process in ten is disturbed on one side alone.
        logs.append(float(np.median(of_new) - np.median(of_old)))
        variances.append(_variance(of_old) + _variance(of_new))
    own = math.sqrt(sum(variances)) / len(both)
    # Where commits disagree by more than their processes do, a commit moves one reference only.
    among = float(np.std(logs, ddof=1)) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    return Link(math.exp(float(np.mean(logs))), max(own, among), both)


def carried(ratios: Mapping[str, float], by: Link) -> dict[str, float]:
    """Return ratios to the old reference as ratios to the new one, by commit."""
    return {commit: ratio * by.factor for commit, ratio in ratios.items()}


# The median's standard error over the mean's, of a normal distribution.
_OF_MEDIAN = math.sqrt(math.pi / 2)


def _variance(logs: npt.NDArray[np.float64]) -> float:
    """Return the variance of a median of logarithms."""
    return float(np.var(logs, ddof=1)) / len(logs) * _OF_MEDIAN**2
