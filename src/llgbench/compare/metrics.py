"""From raw times to metrics: of a case, of all cases pooled, of single steps; per process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from llgbench.compare.comparison import BUILD, RAW_MAX, TOKENIZER
from llgbench.compare.facts import Step
from llgbench.compare.messages import Answer, CaseAnswer, SideTimes
from llgbench.compare.table import Measured
from llgbench.records import stats
from llgbench.records import times as record_times

Floats = npt.NDArray[np.float64]
Times = list[npt.NDArray[np.uint64]]

# Among fewer steps the 99.9th percentile is the maximum by another name.
_STEPS_FOR_P999 = 2000

TOKENIZER_BUILD = f"{TOKENIZER} {BUILD}"

_PERCENTILES = (25.0, 50.0, 75.0, 90.0, 95.0, 99.0)

# How many of the costliest steps are shown.
WORST = 3


def side_metrics(case: CaseAnswer, times: SideTimes) -> dict[str, float]:
    """Return one process's metrics of one case and side, in nanoseconds; only those it carries."""
    masks, consumed = times.mask.arrays, times.consume.arrays
    texts = len(case.texts)
    tbm = _tbm(masks, consumed)
    pooled = stats.pool(tbm)
    rounds = [stats.pool(part) for part in record_times.rounds(tbm, texts)]
    found = {
        "TBM p50": stats.percentile(pooled, 50),
        "TBM p99": stats.percentile(pooled, 99),
        **of_steps(_joined(step_medians(case, times))),
        RAW_MAX: float(np.median([r.max() for r in rounds if len(r)] or [0])),
        "TTFM": stats.percentile(_ttfm(times), 50),
        "consume": stats.percentile(stats.pool(consumed), 50),
    }
    return {name: value for name, value in found.items() if value}


def step_medians(case: CaseAnswer, times: SideTimes) -> dict[str, Floats]:
    """Return each step's TBM in one process, by text: the median over rounds, in nanoseconds.

    What the machine does to one replay is no property of a step. A percentile over these medians is
    one of the very steps of the input, as in a count, and not of samples.
    """
    tbm = _tbm(times.mask.arrays, times.consume.arrays)
    found = {}
    for at, text in enumerate(case.texts):
        replays = tbm[at :: len(case.texts)]
        # Where a side's masks differ from round to round only the steps of all count.
        least = min(map(len, replays), default=0)
        steps = [r[:least] for r in replays] or [np.empty(0, np.uint64)]
        found[text] = np.median(np.stack(steps), axis=0)
    return found


def of_steps(medians: Floats) -> dict[str, float | None]:
    """Return the metrics of the costliest steps, in nanoseconds, from each step's median."""
    enough = len(medians) >= _STEPS_FOR_P999
    return {
        "TBM p99.9": float(np.percentile(medians, 99.9)) if enough else None,
        "TBM max": float(medians.max(initial=0)),
    }


def add(found: Measured, answer: Answer) -> None:
    """Add one process's metrics."""
    if answer.tokenizer_ns is not None:
        built = float(answer.tokenizer_ns.base), float(answer.tokenizer_ns.head)
        found.setdefault((TOKENIZER, answer.vocab, BUILD), []).append(built)
    for name, case in answer.cases.items():
        if case.times is None:
            continue  # the masks of another case differ, so none was timed
        base, head = side_metrics(case, case.times.base), side_metrics(case, case.times.head)
        _append(found, name, answer.vocab, base, head)


def pool(found: Measured, answer: Answer, name: str) -> None:
    """Add one process's metrics over all cases at once, as if these were one case of this name."""
    timed = [case for case in answer.cases.values() if case.times is not None]
    if not timed:
        return
    sides = [(case, case.times) for case in timed if case.times is not None]
    base = _pooled([(case, times.base) for case, times in sides])
    head = _pooled([(case, times.head) for case, times in sides])
    if answer.tokenizer_ns is not None:
        built = answer.tokenizer_ns.map(float)
        base[TOKENIZER_BUILD], head[TOKENIZER_BUILD] = built.base, built.head
    _append(found, name, answer.vocab, base, head)


def _append(
    found: Measured, case: str, vocab: str, base: Mapping[str, float], head: Mapping[str, float]
) -> None:
    for metric, value in base.items():
        if metric in head:
            found.setdefault((case, vocab, metric), []).append((value, head[metric]))


def _pooled(cases: Sequence[tuple[CaseAnswer, SideTimes]]) -> dict[str, float]:
    masks = [array for _, times in cases for array in times.mask.arrays]
    consumed = [array for _, times in cases for array in times.consume.arrays]
    ttfm = np.concatenate([_ttfm(times) for _, times in cases])
    medians = np.concatenate([_joined(step_medians(case, times)) for case, times in cases])
    tbm = stats.pool(_tbm(masks, consumed))
    values: dict[str, float | None] = {"TBM avg": stats.mean(tbm)}
    values |= {f"TBM p{q:g}": stats.percentile(tbm, q) for q in _PERCENTILES}
    values |= of_steps(medians)
    for part, arrays in (("mask", masks), ("consume", consumed)):
        of_part = stats.pool(arrays)
        values |= {f"{part} p{q:g}": stats.percentile(of_part, q) for q in (50.0, 99.0)}
    if len(ttfm):
        values |= {"TTFM avg": float(np.mean(ttfm)), "TTFM p50": float(np.median(ttfm))}
    return {name: value for name, value in values.items() if value}


def costliest(answers: Iterable[Answer], n: int = WORST) -> list[Step]:
    """Return the steps that cost the head most, the costliest first, in nanoseconds.

    A step's cost is the median over all its replays of a process, then over processes: what the
    machine does to one replay is no property of the step.
    """
    costs: dict[tuple[str, str, str], list[tuple[Floats, Floats]]] = {}
    for answer in answers:
        for name, case in answer.cases.items():
            if case.times is None:
                continue
            base, head = step_medians(case, case.times.base), step_medians(case, case.times.head)
            for text in case.texts:
                costs.setdefault((name, answer.vocab, text), []).append((base[text], head[text]))
    steps: list[Step] = []
    for (name, vocab, text), pairs in costs.items():
        # A process that stopped earlier has the same steps up to there.
        least = min(min(len(base), len(head)) for base, head in pairs)
        medians = np.median([[side[:least] for side in pair] for pair in pairs], axis=0)
        steps += worst_of(Step(name, vocab, text, 0, 0.0, 0.0), medians[0], medians[1], n)
    return sorted(steps, key=lambda s: -s.head)[:n]


def worst_of(like: Step, base: Floats, head: Floats, n: int) -> list[Step]:
    """Return the ``n`` costliest steps of one text, which ``like`` names."""
    return [
        Step(like.case, like.vocab, like.text, at, float(base[at]), float(head[at]), unit=like.unit)
        for at in np.argsort(head)[::-1][:n].tolist()
    ]


def _tbm(masks: Times, consumed: Times) -> Times:
    return record_times.tbms(masks, consumed)


def _ttfm(times: SideTimes) -> npt.NDArray[np.uint64]:
    return stats.pool(record_times.ttfms(times.compile.arrays, times.mask.arrays))


def _joined(by_text: Mapping[str, Floats]) -> Floats:
    return np.concatenate([*by_text.values(), np.empty(0)])
