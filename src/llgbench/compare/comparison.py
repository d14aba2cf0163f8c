"""Comparisons as data: the plan, the table with a verdict in every row, and their words.

Pure: ratios come in, rows and lines go out. compare.py runs the processes they come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from llgbench.compare import inference
from llgbench.compare.inference import MIN_PROCESSES, Estimate, Word
from llgbench.compare.sides import SIDES, Side
from llgbench.records import stats, times
from llgbench.records.packed import unpack

# The worst moments of the machine are in it, so it may find what is slower and can hold nothing to
# be the same.
RAW_MAX = "TBM max of a round"
METRICS = ("TBM p50", "TBM p99", "TBM p99.9", "TBM max", RAW_MAX, "TTFM", "consume")

# The row of llg_new_tokenizer, which no case has a part in; one sample per process.
TOKENIZER, BUILD = "tokenizer", "build"

# Too few samples, or too wild, to be asked to be the same before a comparison is at its end.
_NOT_ASKED = (RAW_MAX, BUILD)
COUNT_METRICS = ("TBM mean", "TBM p50", "TBM p99", "TBM max", "TTFM", "consume")

# The row that has every case in it: per process, the geometric mean of the cases' ratios.
ALL = "all cases"

Unit = Literal["ns", "instructions"]

# What one process measures for, beside its set-up; small budgets get shorter processes.
PROCESS_SECONDS = 5.0


@dataclass(frozen=True)
class Plan:
    """How a comparison is done.

    Attributes:
        vocabs: on which vocabularies; a process takes one.
        cases: by name.
        variant: the bridge of both sides.
        threshold: the smallest relative change of interest.
        rate: the false discovery rate of the table.
        budget_s: wall time.
        seconds: what one process measures for.
        unequal: compare the cases whose masks agree where those of others differ.
        seed: of the bootstrap.
    """

    vocabs: tuple[str, ...]
    cases: tuple[str, ...]
    variant: str = "greedy_tokenize"
    threshold: float = 0.02
    rate: float = 0.05
    budget_s: float = 300.0
    seconds: float = PROCESS_SECONDS
    unequal: bool = False
    seed: int = 20261130


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        case: its name, or ALL.
        vocab: its name.
        metric: one of METRICS or COUNT_METRICS.
        unit: of ``base`` and ``head``.
        base: the median over processes; None in ALL.
        head: the same.
        estimate: of the ratio head / base.
        verdict: what follows.
    """

    case: str
    vocab: str
    metric: str
    unit: Unit
    base: float | None
    head: float | None
    estimate: Estimate
    verdict: Word

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)


# Why a comparison of a library with itself ended: nothing was measured.
IDENTICAL = "the same library"


@dataclass
class Comparison:
    """What a comparison found.

    Attributes:
        base: one side.
        head: the other.
        plan: how it was done.
        rows: the table that decides; empty where masks differ everywhere.
        clock: the table by the clock where counts decide; empty otherwise.
        functions: those whose instructions changed most, by vocab, in one counted process.
        differences: the cases whose masks differ, as compare_worker describes them.
        counters: work counters the engines export, by case and side; empty where they have none.
        processes: results of the workers that timed, in order.
        counted: how many processes counted instructions; 0 where the clock alone decides.
        lost: what became of workers that gave no result, one line each.
        steps: masks compared step by step.
        wall_s: how long it took.
        ended: why no more processes were started.
        self_test: whether both sides are the same engine.
    """

    base: Side
    head: Side
    plan: Plan
    rows: list[Row] = field(default_factory=list)
    clock: list[Row] = field(default_factory=list)
    counters: list[dict[str, Any]] = field(default_factory=list)
    functions: list[dict[str, Any]] = field(default_factory=list)
    differences: list[dict[str, Any]] = field(default_factory=list)
    processes: list[dict[str, Any]] = field(default_factory=list)
    counted: int = 0
    lost: list[str] = field(default_factory=list)
    steps: int = 0
    wall_s: float = 0.0
    ended: str = ""
    self_test: bool = False

    @property
    def slower(self) -> list[Row]:
        """Rows called slower, the worst first."""
        return sorted(
            (r for r in self.rows if r.verdict == "slower"), key=lambda r: -r.estimate.ratio
        )

    @property
    def verdict(self) -> str:
        """One word for the whole."""
        if self.ended == IDENTICAL:
            return "identical"
        if self.differences and not self.rows:
            return "different masks"
        words = [row.verdict for row in self.rows]
        for word in ("slower", "faster"):
            if word in words:
                return word
        steady = [row for row in self.rows if row.metric not in _NOT_ASKED]
        overall = [row for row in steady if row.case == ALL] or steady
        return "same" if all(row.verdict == "same" for row in overall) else "unclear"

    @property
    def clear(self) -> bool:
        """Whether more processes would change nothing: every row that can be decided is."""
        return all(row.verdict != "unclear" for row in self.rows if row.metric not in _NOT_ASKED)

    @property
    def failed(self) -> bool:
        """Whether something is slower, or masks differ: exit status 1."""
        return bool(self.differences) or any(row.verdict == "slower" for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the raw samples as plain data."""
        return {
            "format": "llgbench comparison",
            "schema": 1,
            "verdict": self.verdict,
            "line": headline(self),
            "base": self.base.to_json(),
            "head": self.head.to_json(),
            "plan": asdict(self.plan),
            "rows": [row.to_json() for row in self.rows],
            "clock": [row.to_json() for row in self.clock],
            "counters": self.counters,
            "functions": self.functions,
            "differences": self.differences,
            "processes": len(self.processes),
            "counted": self.counted,
            "lost": self.lost,
            "steps": self.steps,
            "wall_s": self.wall_s,
            "ended": self.ended,
            "self": self.self_test,
        }


# ---- from raw samples to the table ----


def side_metrics(case: Mapping[str, Any], side: str) -> dict[str, float]:
    """Return one process's metrics of one case and side, in nanoseconds; only those it carries."""
    raw = {name: unpack(case[side][name]) for name in ("compile", "mask", "consume")}
    texts = len(case["texts"])
    tbm = times.tbms(raw["mask"], raw["consume"])
    pooled = stats.pool(tbm)
    rounds = [stats.pool(part) for part in times.rounds(tbm, texts)]
    steps = np.concatenate([*step_medians(case, side).values(), np.empty(0)])
    ttfm = stats.pool(times.ttfms(raw["compile"], raw["mask"]))
    found = {
        "TBM p50": stats.percentile(pooled, 50),
        "TBM p99": stats.percentile(pooled, 99),
        **of_steps(steps),
        RAW_MAX: float(np.median([r.max() for r in rounds if len(r)] or [0])),
        "TTFM": stats.percentile(ttfm, 50),
        "consume": stats.percentile(stats.pool(raw["consume"]), 50),
    }
    return {name: value for name, value in found.items() if value}


def step_medians(case: Mapping[str, Any], side: str) -> dict[str, npt.NDArray[np.float64]]:
    """Return each step's TBM in one process, by text: the median over rounds, in nanoseconds.

    What the machine does to one replay is no property of a step. A percentile over these medians is
    one of the very steps of the input, as in a count, and not of samples.
    """
    tbm = times.tbms(unpack(case[side]["mask"]), unpack(case[side]["consume"]))
    texts = case["texts"]
    found = {}
    for at, text in enumerate(texts):
        replays = tbm[at :: len(texts)]
        # Where a side's masks differ from round to round only the steps of all count.
        least = min(map(len, replays), default=0)
        steps = [r[:least] for r in replays] or [np.empty(0, np.uint64)]
        found[text] = np.median(np.stack(steps), axis=0)
    return found


# Among fewer steps the 99.9th percentile is the maximum by another name.
_STEPS_FOR_P999 = 2000


def of_steps(medians: npt.NDArray[np.float64]) -> dict[str, float | None]:
    """Return the metrics of the costliest steps, in nanoseconds, from each step's median."""
    enough = len(medians) >= _STEPS_FOR_P999
    return {
        "TBM p99.9": float(np.percentile(medians, 99.9)) if enough else None,
        "TBM max": float(medians.max(initial=0)),
    }


Measured = dict[tuple[str, str, str], list[tuple[float, float]]]


def measured(processes: Iterable[Mapping[str, Any]]) -> Measured:
    """Return (base, head) of every process by (case, vocab, metric)."""
    found: Measured = {}
    for process in processes:
        built = process.get("tokenizer_ns")
        if built is not None:
            pair = float(built[SIDES[0]]), float(built[SIDES[1]])
            found.setdefault((TOKENIZER, process["vocab"], BUILD), []).append(pair)
        for name, case in process["cases"].items():
            if SIDES[0] not in case:
                continue  # the masks of another case differ, so none was timed
            base, head = (_metrics(case, side) for side in SIDES)
            for metric in base.keys() & head.keys():
                pair = base[metric], head[metric]
                found.setdefault((name, process["vocab"], metric), []).append(pair)
    return found


def _metrics(case: Mapping[str, Any], side: str) -> dict[str, float]:
    given: dict[str, float] | None = case[side].get("metrics")
    if given is None:
        given = case[side]["metrics"] = side_metrics(case, side)
    return given


def table(
    found: Measured, plan: Plan, rate: float, random: np.random.Generator, unit: Unit = "ns"
) -> list[Row]:
    """Return the table: a row a metric for all cases together, then for each case.

    A metric that too few processes carry has no row.
    """
    metrics, least = (METRICS, MIN_PROCESSES) if unit == "ns" else (COUNT_METRICS, 2)
    keys, estimates, medians = [], [], []
    for vocab in plan.vocabs:
        for case, metric in [*product((ALL, *plan.cases), metrics), (TOKENIZER, BUILD)]:
            if case == ALL:
                ratios = _geometric(found, plan, vocab, metric)
                median = None
            else:
                pairs = found.get((case, vocab, metric), [])
                ratios = [head / base for base, head in pairs]
                median = tuple(np.median(pairs, axis=0).tolist()) if pairs else None
            if len(ratios) < least:
                continue
            keys.append((case, vocab, metric))
            # Counts of equal seeds are alike to a thousandth: a few processes are enough,
            # too few to draw again from.
            estimates.append(
                inference.estimate(
                    ratios, plan.threshold, random, resamples=4000 if unit == "ns" else 0
                )
            )
            medians.append(median or (None, None))
    words = inference.verdicts(estimates, plan.threshold, rate, least)
    return [
        Row(*key, unit, median[0], median[1], e, word)
        for key, median, e, word in zip(keys, medians, estimates, words, strict=True)
    ]


def _geometric(found: Measured, plan: Plan, vocab: str, metric: str) -> list[float]:
    """Return the geometric mean over cases of every process's ratio.

    Only cases that every process carries count, so that each process means the same by it.
    """
    per_case = [found.get((case, vocab, metric), []) for case in plan.cases]
    n = max(map(len, per_case), default=0)
    whole = [pairs for pairs in per_case if len(pairs) == n]
    if n == 0 or len(plan.cases) < 2:
        return []
    logs = np.log([[head / base for base, head in pairs] for pairs in whole])
    return [float(x) for x in np.exp(logs.mean(axis=0))]


# ---- in words ----


def headline(found: Comparison) -> str:
    """Return the one line for the whole."""
    if found.ended == IDENTICAL:
        return f"identical: {IDENTICAL}"
    if found.differences and not found.rows:
        d = found.differences[0]
        return f"the masks differ, so nothing was timed: first in {d['case']}, step {d['step']}"
    words: tuple[Word, ...] = ("slower", "faster", "same", "unclear")
    count = {word: sum(r.verdict == word for r in found.rows) for word in words}
    by = " in instructions" if found.rows and found.rows[0].unit == "instructions" else ""
    parts = [f"{found.verdict}{by}: of {len(found.rows)} metrics "]
    parts.append(", ".join(f"{n} {word}" for word, n in count.items() if n))
    worst = (
        found.slower[:1]
        or sorted((r for r in found.rows if r.verdict == "faster"), key=lambda r: r.estimate.ratio)[
            :1
        ]
    )
    for row in worst:
        parts.append(
            f"; most: {row.metric} of {row.case} on {row.vocab} {ratio_text(row.estimate)}"
        )
    n = found.counted or len(found.processes)
    parts.append(f" (threshold {found.plan.threshold:.3g}, {n} processes)")
    if found.differences:
        parts.append(f"; the masks of {len(found.differences)} other cases differ")
    return "".join(parts)


def ratio_text(e: Estimate) -> str:
    """Return a ratio with its interval, such as ``1.050 [1.041, 1.060]``."""
    return f"{e.ratio:.3f} [{e.low:.3f}, {e.high:.3f}]"


def difference_lines(d: Mapping[str, Any]) -> list[str]:
    """Return what a reader needs to see of a difference of masks."""
    lines = [
        f"masks differ: {d['case']} on {d['vocab']}, text {d['text']!r}, step {d['step']}, "
        f"after {d['so_far']!r}, before {d['next']!r}"
    ]
    for side in SIDES:
        shown = ", ".join(f"{token} {piece!r}" for token, piece in d["only"][side])
        more = d["n_only"][side] - len(d["only"][side])
        shown = (shown or "none") + (f" and {more} more" if more else "")
        lines.append(
            f"  {side}: allows {d['allowed'][side]} tokens, only here: {shown}; "
            f"replay: {d['end'][side]}"
        )
    return lines


def floor_text(found: Comparison) -> str:
    """Return what an A/A comparison says of this machine, in one line."""
    seen = [inference.smallest_visible(row.estimate, found.plan.threshold) for row in found.rows]
    spread = [row.estimate.spread for row in found.rows]
    best = found.rows[int(np.argmin(seen))]
    return (
        f"noise floor: a process's ratio varies by {np.median(spread):.2%} (median of the rows, "
        f"worst {max(spread):.2%}); half of the rows see a change of {np.median(seen):.1%}, "
        f"the best ({best.metric} of {best.case}) of {min(seen):.1%}"
    )
