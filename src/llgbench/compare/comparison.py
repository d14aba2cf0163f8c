"""A comparison as data: how it was done, what it found, as comparison.json holds it.

Reading one loads neither an engine nor llama.cpp: a section can be rendered on any machine.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llgbench import files
from llgbench.compare import side, words
from llgbench.compare.facts import Difference, FunctionChange, Step, Unit, WorkCounter
from llgbench.compare.inference import Estimate, Word
from llgbench.compare.side import Side
from llgbench.errors import RecordError
from llgbench.inputs.configuration import CHECKPOINTS, QUICK_JSON_CASES, QUICK_LEXER_CASES

SCHEMA = 2
_FORMAT = "llgbench comparison"

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

# Compared where none is named.
DEFAULT_CASES = (*QUICK_JSON_CASES, *QUICK_LEXER_CASES, *CHECKPOINTS)

# What one process measures for, beside its set-up; small budgets get shorter processes.
PROCESS_SECONDS = 5.0

# Why a comparison of a library with itself ended: nothing was measured.
IDENTICAL = "the same library"


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
        ratios: head / base of each process, of which the estimate is made.
    """

    case: str
    vocab: str
    metric: str
    unit: Unit
    base: float | None
    head: float | None
    estimate: Estimate
    verdict: Word
    ratios: tuple[float, ...] = ()


@dataclass(frozen=True)
class Pooled:
    """A metric over the steps of all cases pooled, in the field's shape; nothing is judged by it.

    Attributes:
        vocab: its name.
        metric: such as ``mask p99``.
        base: the median over processes, in nanoseconds.
        head: the same.
        estimate: of the ratio head / base.
    """

    vocab: str
    metric: str
    base: float
    head: float
    estimate: Estimate


@dataclass(frozen=True)
class Machine:
    """Where it was measured.

    Attributes:
        cpu: the processor's name.
        cores: how many there are.
        governor: of the frequency; None where the system shows none.
        system: name, release and architecture.
    """

    cpu: str
    cores: int | None
    governor: str | None
    system: str

    def __str__(self) -> str:
        cores, governor = self.cores or "?", self.governor or "unknown"
        return f"{self.cpu}, {cores} cores, governor {governor}, {self.system}"


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes:
        base: one side.
        head: the other.
        plan: how it was done.
        rows: the table that decides; empty where masks differ everywhere.
        clock: the table by the clock where counts decide; empty otherwise.
        pooled: the table over all cases' steps, by the clock.
        costliest: the steps that cost the head most.
        counters: of the engines' work; empty where they export none.
        functions: those whose instructions changed most.
        named: whether both sides have names of functions: most published libraries have none.
        differences: of masks.
        processes: how many timed.
        counted: how many counted instructions; 0 where the clock alone decides.
        lost: what became of workers that gave no result, one line each.
        steps: masks compared step by step.
        wall_s: how long it took.
        ended: why no more processes were started.
        rate: the false discovery rate that the table's last look could spend; None: the plan's.
        self_test: whether both sides are the same engine.
        machine: where.
        schema: of the file it was read from.
    """

    base: Side
    head: Side
    plan: Plan
    rows: tuple[Row, ...] = ()
    clock: tuple[Row, ...] = ()
    pooled: tuple[Pooled, ...] = ()
    costliest: tuple[Step, ...] = ()
    counters: tuple[WorkCounter, ...] = ()
    functions: tuple[FunctionChange, ...] = ()
    named: bool = False
    differences: tuple[Difference, ...] = ()
    processes: int = 0
    counted: int = 0
    lost: tuple[str, ...] = ()
    steps: int = 0
    wall_s: float = 0.0
    ended: str = ""
    rate: float | None = None
    self_test: bool = False
    machine: Machine | None = None
    schema: int = SCHEMA

    @property
    def slower(self) -> list[Row]:
        """Rows called slower, the worst first."""
        return sorted(
            (r for r in self.rows if r.verdict == "slower"), key=lambda r: -r.estimate.ratio
        )

    @property
    def faster(self) -> list[Row]:
        """Rows called faster, the best first."""
        return sorted(
            (r for r in self.rows if r.verdict == "faster"), key=lambda r: r.estimate.ratio
        )

    @property
    def rebuilt(self) -> bool:
        """Whether both are one release, published and built here: the ratios are the compiler's."""
        return bool(self.rows) and side.same_sources(self.base, self.head)

    @property
    def verdict(self) -> str:
        """One word for the whole."""
        if self.ended == IDENTICAL:
            return "identical"
        if self.differences and not self.rows:
            return "different masks"
        if self.rebuilt:
            return "another build"
        found = [row.verdict for row in self.rows]
        for word in ("slower", "faster"):
            if word in found:
                return word
        steady = [row for row in self.rows if row.metric not in _NOT_ASKED]
        overall = [row for row in steady if row.case == ALL] or steady
        return "same" if all(row.verdict == "same" for row in overall) else "unclear"

    @property
    def clear(self) -> bool:
        """Whether more processes would change nothing: every row that can be decided is."""
        return all(row.verdict != "unclear" for row in self.rows if row.metric not in _NOT_ASKED)

    @property
    def allowed(self) -> float:
        """The false discovery rate that the table was held to."""
        return self.plan.rate if self.rate is None else self.rate

    @property
    def failed(self) -> bool:
        """Whether something is slower, or masks differ: exit status 1.

        What another compiler makes slower is no failure of the sources, which are the same.
        """
        return bool(self.differences) or (not self.rebuilt and bool(self.slower))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the raw samples as plain data."""
        data = {**asdict(self), "base": self.base.to_json(), "head": self.head.to_json()}
        data["self"] = data.pop("self_test")
        line = words.headline(self)
        return {"format": _FORMAT, **data, "schema": SCHEMA, "verdict": self.verdict, "line": line}

    @classmethod
    def from_json(cls, data: Any, where: str) -> Comparison:
        """Read back what :meth:`to_json` wrote, or an earlier version of it.

        Args:
            data: plain data, from a foreign file.
            where: the file; begins the message.

        Raises:
            RecordError: it is not a comparison, of a later version, or damaged.
        """
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise RecordError(f"{where}: not a comparison, as llgbench compare and pr write it")
        schema = data.get("schema")
        if not isinstance(schema, int) or not 1 <= schema <= SCHEMA:
            raise RecordError(
                f"{where}: schema {schema!r}, this llgbench reads up to {SCHEMA}; use a later one"
            )
        data = {**data, "self_test": data.get("self", False)}
        found = files.convert(data, cls, where, error=RecordError)
        estimates = [row.estimate for row in (*found.rows, *found.clock)]
        estimates += [row.estimate for row in found.pooled]
        ratios = [n for e in estimates for n in (e.ratio, e.low, e.high)]
        ratios += [n for row in found.rows for n in row.ratios]
        if not all(0 < n < math.inf for n in ratios):
            raise RecordError(f"{where} is damaged: a ratio is not a positive number")
        return found


def read(path: Path) -> Comparison:
    """Read a comparison.json.

    Raises:
        RecordError: it cannot be read, or as :meth:`Comparison.from_json`.
    """
    content = files.read_loose_json(path, dict[str, Any], error=RecordError)
    return Comparison.from_json(content, str(path))


def write(found: Comparison, path: Path) -> None:
    """Write a comparison.json.

    Raises:
        RecordError: it cannot be written.
    """
    files.write(path, json.dumps(found.to_json(), indent=1), error=RecordError)
