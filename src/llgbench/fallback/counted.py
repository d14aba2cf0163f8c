"""What the greedy lexeme fallback costs in instructions: overhead.py's rows without its clock.

A process holds the engines of all sides, so that they share its hash seeds; the side with the
option on has a copy of the library, because the seeds of one library are drawn one after another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from llgbench import processes
from llgbench.compare.sides import copy_of
from llgbench.engines import counters
from llgbench.engines.engine import Engine, load
from llgbench.fallback.counted_jobs import (
    KINDS,
    PARTS,
    curve_job,
    json_job,
    label,
    pending_job,
)
from llgbench.fallback.overhead import JSON_CASES, engines
from llgbench.fallback.pending import STATES
from llgbench.fallback.states import (
    CHECKPOINT_VOCAB,
    LENGTHS,
    Strategy,
    checkpoint,
    points,
)
from llgbench.measure import callgrind
from llgbench.measure.counter import (
    Recorded,
)
from llgbench.measure.replay import replay
from llgbench.measure.runner import Workbench

# Processes, each with seeds of its own, which move a ratio by some hundredths of a percent.
SEEDS = 2

# Of the engine's own counters, those that a step's work by n shows in.
WORK = (
    "trie_nodes_walked", "lexer_cost", "all_items", "rows", "reread_bytes", "synced_bytes",
)  # fmt: skip

_Sums = dict[str, list[int]]


@dataclass(frozen=True)
class CountedOverhead:
    """One case's instructions over its partner's, the longest text; the mean over seeds.

    Attributes:
        case: its name.
        vocab: its name.
        kind: ``cold``, the first replay of a fresh matcher, or ``warm``, the one after it.
        off_mask: option off over stock, all masks of the replay.
        off_consume: the same for consume_token.
        off_step: the same for both together: what a step costs.
        on_mask: option on over option off.
        on_consume: the same for consume_token.
        on_step: the same for both together.
        spread: the largest distance of one seed's ratio from its mean, over the six.
    """

    case: str
    vocab: str
    kind: str
    off_mask: float
    off_consume: float
    off_step: float
    on_mask: float
    on_consume: float
    on_step: float
    spread: float


@dataclass(frozen=True)
class PendingCount:
    """One state's masks in instructions, the mask cache dropped before each; the least counted.

    Attributes:
        state: its name, see pending.STATES.
        vocab: its name.
        both: a boundary pending.
        longer: the same text where the terminal cannot have ended at the boundary.
        other: the same where it must have.
    """

    state: str
    vocab: str
    both: int
    longer: int
    other: int

    @property
    def over_costlier(self) -> float:
        """The pending mask over the costlier of its two readings alone."""
        return self.both / max(self.longer, self.other)

    @property
    def over_longer(self) -> float:
        """The pending mask over the longer reading alone, however little that allows."""
        return self.both / self.longer


@dataclass(frozen=True)
class CountedPoint:
    """One length of the checkpoint's curve: mask and token of a step, in instructions, warm.

    Attributes:
        n: bytes for which the terminal stays open.
        strategy: as in overhead.Point.
        steps: of the trace.
        costliest: of a step.
        at: which step that is, from 0.
        median: over the steps.
        work: by counter, the most that one step did.
    """

    n: int
    strategy: Strategy
    steps: int
    costliest: int
    at: int
    median: float
    work: dict[str, int]


def on_json(
    vocab: str, seeds: int = SEEDS, cases: Sequence[str] = JSON_CASES
) -> list[CountedOverhead]:
    """Count what the option costs where no boundary is ever pending.

    Raises:
        UnavailableError: an engine is not built, or there is no valgrind.
        CompareError: a process under valgrind fails.
    """
    callgrind.require()
    stock, fallback = engines()
    with processes.temporary_folder() as folder:
        copy = load(copy_of(fallback.path, folder))
        sides = {"stock": stock, "off": fallback, "on": copy}
        recorded = json_job(sides, fallback.fallback_option or "", vocab, cases, folder)
        # Counts do not mind company.
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            sums = list(pool.map(lambda seed: sums_of(recorded, seed), range(seeds)))
    return [_overhead(name, vocab, kind, sums) for name in cases for kind in KINDS]


def pending(vocab: str) -> list[PendingCount]:
    """Count the masks of states with a boundary pending, and without one.

    Raises:
        UnavailableError: an engine is not built, or there is no valgrind.
        CompareError: a process under valgrind fails.
    """
    callgrind.require()
    _, engine = engines()
    with processes.temporary_folder() as folder:
        sums = sums_of(pending_job(engine, vocab, folder), 0)
    return [
        PendingCount(
            state.name, vocab,
            *(
                min(sums[label(state.name, reading, "mask")])
                for reading in ("both", "longer", "other")
            ),
        )
        for state in STATES
    ]  # fmt: skip


def curve(
    lengths: Sequence[int] = LENGTHS, vocab: str = CHECKPOINT_VOCAB
) -> Iterator[CountedPoint]:
    """Count a checkpoint's steps by its length, and what the engine says of their work.

    Every step is counted, because nobody says beforehand which one costs most. A dump a step
    costs some milliseconds, a minute in all at 16384 bytes.

    Raises:
        UnavailableError: an engine is not built, there is no valgrind, or the engine exports no
            counters.
        CompareError: a process under valgrind fails.
    """
    callgrind.require()
    _, engine = engines()
    wanted = points(lengths)
    with Workbench(vocab) as bench:
        with processes.temporary_folder() as folder:
            sums = sums_of(curve_job(wanted, engine, bench, folder), 0)
        for n, strategy in wanted:
            steps = np.array(sums[label(f"{n}", strategy, "step")])
            yield CountedPoint(
                n, strategy, len(steps), int(steps.max()), int(steps.argmax()),
                float(np.median(steps)), work(n, strategy, engine, bench),
            )  # fmt: skip


def work(n: int, strategy: Strategy, engine: Engine, bench: Workbench) -> dict[str, int]:
    """Return the most that one warm step of a checkpoint did, by counter."""
    matcher, trace = checkpoint(n, strategy, engine, bench)
    with matcher:
        replay(matcher, trace)
        matcher.reset()
        found = counters.by_step(matcher, trace) or {}
    return {name: int(found[name].max()) for name in WORK if name in found}


def sums_of(recorded: Recorded, seed: int) -> dict[str, list[int]]:
    """Count in a process; return its counts by name, in order."""
    found: _Sums = {}
    for dump in callgrind.run(recorded, seed):
        found.setdefault(dump.name, []).append(dump.instructions)
    return found


def _overhead(name: str, vocab: str, kind: str, sums: Sequence[_Sums]) -> CountedOverhead:
    ratios: dict[str, float] = {}
    spread = 0.0
    for side, partner in (("off", "stock"), ("on", "off")):
        for part in (*PARTS, "step"):
            of_seeds = [
                _instructions(found, name, side, kind, part)
                / _instructions(found, name, partner, kind, part)
                for found in sums
            ]
            mean = float(np.mean(of_seeds))
            ratios[f"{side}_{part}"] = mean
            spread = max(spread, float(np.abs(np.array(of_seeds) - mean).max()))
    return CountedOverhead(name, vocab, kind, **ratios, spread=spread)


def _instructions(sums: _Sums, name: str, side: str, kind: str, part: str) -> int:
    parts = PARTS if part == "step" else (part,)
    return sum(sum(sums[label(name, side, kind, p, "sum")]) for p in parts)
