"""Statistics of raw times; pure functions on arrays, no clock and no engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

# A percentile is given only where this many samples lie above it; fewer make it an anecdote.
MIN_ABOVE = 10

# The field's columns (MaskBench): percentiles, and the maximum as p100.
PERCENTILES = (25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0)


def pool(replays: Iterable[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    """Join the samples of all replays: tails are pooled, never averaged across replays."""
    arrays = list(replays)
    return np.concatenate(arrays) if arrays else np.empty(0, np.uint64)


def percentile(samples: npt.NDArray[np.uint64], q: float) -> float | None:
    """Return the q-th percentile in the samples' unit, None where the sample cannot carry it.

    Linear interpolation between order statistics. 100 is the maximum and needs one sample; below
    it, MIN_ABOVE samples must lie above.
    """
    n = len(samples)
    if q == 100.0:
        return float(samples.max()) if n else None
    if n * (1 - q / 100.0) < MIN_ABOVE - 1e-9:  # 1000 * (1 - 0.99) is not quite 10
        return None
    return float(np.percentile(samples, q))


def needed(q: float) -> int:
    """Return how many samples carry the q-th percentile, below 100."""
    return math.ceil(MIN_ABOVE / (1 - q / 100.0) - 1e-6)  # 10 / (1 - 0.99) is not quite 1000


def mean(samples: npt.NDArray[np.uint64]) -> float | None:
    """Return the mean; None of an empty sample."""
    return float(samples.mean()) if len(samples) else None


def block_percentiles(
    replays: Sequence[npt.NDArray[np.uint64]], q: float, blocks: int = 5
) -> list[float]:
    """Return the percentile of each of several disjoint blocks of replays.

    The blocks are independent measurements of the same percentile, so their spread says how far
    to trust it. Fewer blocks are made where a block could not carry the percentile; an empty list
    means that even one cannot.
    """
    for count in range(min(blocks, len(replays)), 0, -1):
        parts = [pool(replays[start::count]) for start in range(count)]
        found = [percentile(part, q) for part in parts]
        if all(value is not None for value in found):
            return [value for value in found if value is not None]
    return []
