"""The figures of a result that more than one place shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llgbench.peers.results import CaseResult
from llgbench.records import stats


def comparison(r: CaseResult) -> tuple[float | None, str | None]:
    """Return an engine's median cold mask over llguidance's, and of how many steps it is.

    Only steps whose masks are equal, or differ by a named class, are compared; where a text is
    not as recorded there is no ratio.
    """
    if r.pairs is None or r.outcome != "right":
        return None, None
    ours = percentile(r.pairs.engine_ns, 50)
    theirs = percentile(r.pairs.base_ns, 50)
    if ours is None or theirs is None or not theirs:
        return None, None
    n = len(r.pairs.engine_ns)
    return digits(ours / theirs), f"{n} of {n + len(r.pairs.left_out)}"


def percentile(samples: Sequence[int], q: float) -> float | None:
    """Return a percentile in nanoseconds; None where too few samples lie above it."""
    return stats.percentile(np.array(samples, np.uint64), q)


def digits(value: float) -> float:
    """Return a value with three digits."""
    return float(f"{value:.3g}")
