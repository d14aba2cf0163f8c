"""What the greedy lexeme fallback costs in instructions: overhead.py's rows without its clock.

A process holds the engines of all sides, so that they share its hash seeds; the side with the
option on has a copy of the library, because the seeds of one library are drawn one after another.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from llgbench import callgrind, counters
from llgbench.engine import Engine
from llgbench.fallback_states import CHECKPOINT_VOCAB, LENGTHS, Strategy, checkpoint, points
from llgbench.overhead import JSON_CASES, engines
from llgbench.overhead_worker import KINDS, PARTS, Job, label
from llgbench.pending import STATES
from llgbench.replay import replay
from llgbench.runner import Workbench
from llgbench.sides import copy_of

# Processes, each with seeds of its own, which move a ratio by some hundredths of a percent.
SEEDS = 2

WORKER = "llgbench.overhead_worker"

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
    def over_dearer(self) -> float:
        """The pending mask over the dearer of its two readings alone."""
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
        dearest: of a step.
        at: which step that is, from 0.
        median: over the steps.
        work: by counter, the most that one step did.
    """

    n: int
    strategy: Strategy
    steps: int
    dearest: int
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
    with tempfile.TemporaryDirectory(prefix="llgbench-") as folder:
        copy = copy_of(fallback.path, Path(folder))
        sides = {"stock": str(stock.path), "off": str(fallback.path), "on": str(copy)}
        job = Job("json", sides, fallback.fallback_option or "", vocab, tuple(cases))
        # Counts do not mind company; two processes are what a small machine has memory for.
        with ThreadPoolExecutor(2) as pool:
            sums = list(pool.map(lambda seed: _count(job, seed), range(seeds)))
    return [_overhead(name, vocab, kind, sums) for name in cases for kind in KINDS]


def pending(vocab: str) -> list[PendingCount]:
    """Count the masks of states with a boundary pending, and without one.

    Raises:
        UnavailableError: an engine is not built, or there is no valgrind.
        CompareError: a process under valgrind fails.
    """
    callgrind.require()
    _, engine = engines()
    sums = _count(_job("pending", engine, vocab, [state.name for state in STATES]), 0)
    return [
        PendingCount(
            state.name, vocab,
            *(
                min(sums[label(state.name, "on", reading, "mask")])
                for reading in ("both", "longer", "other")
            ),
        )
        for state in STATES
    ]  # fmt: skip


def curve(
    lengths: Sequence[int] = LENGTHS, vocab: str = CHECKPOINT_VOCAB
) -> Iterator[CountedPoint]:
    """Count a checkpoint's steps by its length, and what the engine says of their work.

    Every step is counted, because nobody says beforehand which one is the dearest. A dump a step
    costs some milliseconds, a minute in all at 16384 bytes.

    Raises:
        UnavailableError: an engine is not built, there is no valgrind, or the engine exports no
            counters.
        CompareError: a process under valgrind fails.
    """
    callgrind.require()
    _, engine = engines()
    wanted = points(lengths)
    names = [f"{n} {strategy}" for n, strategy in wanted]
    sums = _count(_job("curve", engine, vocab, names), 0)
    with Workbench(vocab) as bench:
        for (n, strategy), name in zip(wanted, names, strict=True):
            steps = np.array(sums[label(name, "on", "step")])
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


def _job(
    what: Literal["pending", "curve"], engine: Engine, vocab: str, names: Sequence[str]
) -> Job:
    """Return a job for the one side ``on``."""
    sides = {"on": str(engine.path)}
    return Job(what, sides, engine.fallback_option or "", vocab, tuple(names))


def _count(job: Job, seed: int) -> _Sums:
    """Run a worker under callgrind; return its counts by name, in order."""
    _, dumps = callgrind.run(WORKER, job.to_json(), seed)
    found: _Sums = {}
    for dump in dumps:
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
