"""Ratios to one reference engine, carried over to another: a new wheel keeps the history.

A history is of ratios commit / reference. Another reference begins it anew, unless the two have
been measured side by side, the old one as a commit is: with what it costs beside the new one, every
earlier ratio is one to the new.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# The median's standard error over the mean's, of a normal distribution.
_OF_MEDIAN = math.sqrt(math.pi / 2)


@dataclass(frozen=True)
class Factor:
    """What takes a ratio to the old reference to one to the new.

    Attributes:
        value: old reference / new reference.
        error: standard error of its logarithm. Every carried ratio has the same, so that among
            themselves they have none of it.
    """

    value: float
    error: float

    def then(self, later: Factor) -> Factor:
        """Return the factor over two new references, one after the other."""
        return Factor(self.value * later.value, math.hypot(self.error, later.error))


# Of a reference to itself.
UNCHANGED = Factor(1.0, 0.0)


def factor(ratios: Sequence[float]) -> Factor:
    """Return the factor of two references that were measured side by side.

    Args:
        ratios: old reference / new reference, one per process, positive; two at least.
    """
    logs = np.log(ratios)
    # The median, as everywhere: one process in ten is disturbed on one side alone.
    error = _OF_MEDIAN * float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    return Factor(math.exp(float(np.median(logs))), error)
