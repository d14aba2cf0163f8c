"""The table of a comparison: ratios of processes in, rows with a verdict out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from llgbench.compare import inference
from llgbench.compare.comparison import (
    ALL,
    BUILD,
    COUNT_METRICS,
    METRICS,
    TOKENIZER,
    Comparison,
    Plan,
    Pooled,
    Row,
)
from llgbench.compare.facts import Unit
from llgbench.compare.inference import MIN_PROCESSES
from llgbench.errors import InputError

# (base, head) of every process by (case, vocab, metric).
Measured = dict[tuple[str, str, str], list[tuple[float, float]]]


@dataclass(frozen=True)
class _Candidate:
    """A row before it is judged."""

    case: str
    vocab: str
    metric: str
    ratios: tuple[float, ...]
    base: float | None = None
    head: float | None = None


def table(
    found: Measured, plan: Plan, rate: float, random: np.random.Generator, unit: Unit = "ns"
) -> tuple[Row, ...]:
    """Return the table: a row per metric for all cases together, then for each case.

    A metric that too few processes carry has no row.
    """
    metrics = METRICS if unit == "ns" else COUNT_METRICS
    candidates = [
        candidate
        for vocab in plan.vocabs
        for case, metric in [*product((ALL, *plan.cases), metrics), (TOKENIZER, BUILD)]
        if len((candidate := _candidate(found, plan, case, vocab, metric)).ratios) >= _least(unit)
    ]
    # Counts of equal seeds are alike to a thousandth: a few processes are enough, too few to draw
    # again from.
    resamples = 4000 if unit == "ns" else 0
    estimates = [
        inference.estimate(c.ratios, plan.threshold, random, resamples=resamples)
        for c in candidates
    ]
    words = inference.verdicts(estimates, plan.threshold, rate, _least(unit))
    return tuple(
        Row(c.case, c.vocab, c.metric, unit, c.base, c.head, e, word, c.ratios)
        for c, e, word in zip(candidates, estimates, words, strict=True)
    )


def pooled(found: Measured, processes: Mapping[str, int], seed: int) -> tuple[Pooled, ...]:
    """Return the table of what was pooled over all cases.

    Args:
        found: what metrics.pool added, under any one name.
        processes: how many there were, by vocab; a metric that fewer than half carry has no row.
        seed: of the bootstrap.
    """
    random = np.random.default_rng(seed)
    rows = []
    for (_, vocab, metric), pairs in found.items():
        if len(pairs) < max(2, processes[vocab] / 2):
            continue
        base, head = np.median(pairs, axis=0).tolist()
        e = inference.estimate([head / base for base, head in pairs], 0.0, random)
        rows.append(Pooled(vocab, metric, base, head, e))
    return tuple(rows)


def judged_again(found: Comparison, threshold: float) -> Comparison:
    """Return a comparison with the verdicts that another threshold gives.

    The intervals are those of the measurement; what is tested anew is whether a ratio lies beyond
    the threshold.

    Raises:
        InputError: the ratios of single processes are not stored.
    """
    if threshold == found.plan.threshold:
        return found
    if any(not row.ratios for row in found.rows):
        raise InputError(
            "--threshold: this comparison was stored by an earlier llgbench, without the ratios of "
            "its processes; compare again"
        )
    plan = replace(found.plan, threshold=threshold)
    unit = found.rows[0].unit if found.rows else "ns"
    estimates = [
        replace(
            row.estimate,
            p=inference.beyond(row.ratios, threshold, inference.TRIM if unit == "ns" else 0.0),
        )
        for row in found.rows
    ]
    rate = found.allowed
    words = inference.verdicts(estimates, threshold, rate, _least(unit))
    rows = tuple(
        replace(row, estimate=e, verdict=word)
        for row, e, word in zip(found.rows, estimates, words, strict=True)
    )
    return replace(found, plan=plan, rows=rows)


def _least(unit: Unit) -> int:
    """Return how many processes a row needs."""
    return MIN_PROCESSES if unit == "ns" else 2


def _candidate(found: Measured, plan: Plan, case: str, vocab: str, metric: str) -> _Candidate:
    if case == ALL:
        return _Candidate(case, vocab, metric, _geometric(found, plan.cases, vocab, metric))
    pairs = found.get((case, vocab, metric), [])
    if not pairs:
        return _Candidate(case, vocab, metric, ())
    ratios = tuple(head / base for base, head in pairs)
    base, head = np.median(pairs, axis=0).tolist()
    return _Candidate(case, vocab, metric, ratios, base, head)


def _geometric(found: Measured, cases: Sequence[str], vocab: str, metric: str) -> tuple[float, ...]:
    """Return the geometric mean over cases of every process's ratio.

    Only cases that every process carries count, so that each process means the same by it; of one
    alone there is no mean.
    """
    per_case = [found.get((case, vocab, metric), []) for case in cases]
    n = max(map(len, per_case), default=0)
    whole = [pairs for pairs in per_case if len(pairs) == n]
    if n == 0 or len(whole) < 2:
        return ()
    logs = np.log([[head / base for base, head in pairs] for pairs in whole])
    return tuple(np.exp(logs.mean(axis=0)).tolist())
