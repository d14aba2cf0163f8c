"""What a benchmark's number is: its unit, its kind, and which way is better; declared here alone.

The benchmarks have these units, as a test holds; alerts take kind and direction from here. Cheap to
import: ASV's discovery imports the benchmarks of every commit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["time", "ratio", "fact"]
Better = Literal["less", "more"]


@dataclass(frozen=True)
class Metric:
    """What a number is.

    Attributes:
        unit: as ASV shows it.
        kind: ``time`` is a cost or a rate and moves with the machine's load (instructions and
            bytes are costs too); ``ratio`` is one cost over another, measured beside it; ``fact``
            is the same wherever it is measured, so that every change of it is real.
        better: ``less`` or ``more``.
    """

    unit: str
    kind: Kind
    better: Better = "less"

    def cost(self, value: float) -> float:
        """Return a value so that more is worse; order and differences are kept."""
        return value if self.better == "less" else -value


SECONDS = Metric("seconds", "time")
RATIO = Metric("ratio", "ratio")
SHARE = Metric("%", "ratio")
INSTRUCTIONS = Metric("instructions", "time")
SAME = Metric("yes", "fact", "more")

# What ASV writes where a benchmark names none: our times without a unit are older, in nanoseconds.
_NO_UNIT = ("", "unit")
NS = Metric("ns", "time")

# By class and name of the metric, by the name alone, or by the class alone; the first that is
# there counts. The name is what follows ``track_``.
_DECLARED = {
    # facts
    "forbidden": Metric("count", "fact"),
    "accepted": Metric("count", "fact", "more"),
    "wrong": Metric("count", "fact"),
    "wrong_tokens": Metric("tokens", "fact"),
    "right_cases": Metric("count", "fact", "more"),
    "Sameness.masks": SAME,
    # the grid, and what a server does besides
    "Harness.overhead": RATIO,
    "Harness.empty_step": SECONDS,
    "PooledTails": SECONDS,
    "Cases": SECONDS,
    "Lexer": SECONDS,
    "Checkpoints": SECONDS,
    "Operations": SECONDS,
    # the tokenizer
    "Tokenizer.build": SECONDS,
    "Tokenizer.table": RATIO,
    # the decode loop
    "tokens_per_second": Metric("tokens/s", "time", "more"),
    "Decode.share": SHARE,
    "Decode.overhead": SHARE,
    "Decode": SECONDS,
    "Modes.share": SHARE,
    "Modes.overhead": SHARE,
    "Modes": SECONDS,
    "Batch": SECONDS,
    "Peers.over_llguidance": RATIO,
    "Peers.memory": Metric("bytes", "time"),
    "Peers.differing": Metric("count", "fact"),
    "Peers": SECONDS,
    "Apply.ours": SECONDS,
    "Apply.of_llama_cpp": SHARE,
    # the greedy lexeme fallback
    "Overhead": RATIO,
    "Curve": SECONDS,
    "Pending": RATIO,
    "OverheadInstructions": RATIO,
    "PendingInstructions": RATIO,
    "CurveInstructions": INSTRUCTIONS,
    # commits of llguidance, as llgbench asv writes them
    "Masks": SECONDS,
    "Ratios": RATIO,
}


def declared(owner: str, name: str) -> Metric | None:
    """Return what is declared of a metric; None of what is not ours.

    Args:
        owner: the benchmark's class.
        name: of the metric, without ``track_``.
    """
    for key in (f"{owner}.{name}", name, owner):
        if key in _DECLARED:
            return _DECLARED[key]
    return None


def of(benchmark: str, unit: str) -> Metric:
    """Return what a benchmark's number is; what is declared nowhere is told by its unit.

    Args:
        benchmark: as ASV names it, ``module.Class.track_name``.
        unit: as ASV's index has it. It was measured in this one, so it counts where another is
            declared, as of another suite's benchmark with a name of ours.
    """
    *owners, method = benchmark.split(".")
    metric = declared(owners[-1] if owners else "", method.removeprefix("track_"))
    if metric is None:
        return _by_unit(unit)
    if metric == SECONDS and unit in _NO_UNIT:
        return NS
    if metric.kind == "fact" or unit in (metric.unit, *_NO_UNIT):
        return metric
    return replace(_by_unit(unit), better=metric.better)


def _by_unit(unit: str) -> Metric:
    # A rate such as tokens/s or MB/s; ns/step is none.
    rate = unit.endswith(("/s", "/sec", "/second"))
    return Metric(unit, "ratio" if unit in ("ratio", "%") else "time", "more" if rate else "less")
