"""Comparisons in instructions: the replay under callgrind, for machines too noisy for a clock.

A worker compares the masks and prepares the job (worker.to_count). A process under callgrind then
counts replays of one text per case by both sides, call by call. What differs between processes is
the hash seeds, which both sides of a process share; so a few processes are enough.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from llgbench import processes
from llgbench.compare import workers
from llgbench.compare.comparison import Comparison, Plan
from llgbench.compare.facts import Difference, FunctionChange, Step, WorkCounter
from llgbench.compare.messages import Answer, Job
from llgbench.compare.metrics import WORST, worst_of
from llgbench.compare.side import SIDES, Side
from llgbench.compare.table import Measured, table
from llgbench.measure import callgrind
from llgbench.measure.callgrind import Dump
from llgbench.measure.counter import Recorded
from llgbench.records import stats
from llgbench.records import times as record_times

# Processes, each with seeds of its own, which move a count by some tenths of a percent.
SEEDS = 5

MOST_CHANGED = 5

# The least share of its instructions for which a library has names of functions. One that was
# stripped has those of its interface, and nothing else.
NAMED = 0.5

# So many are counted whatever the budget: fewer have no spread.
MIN_SEEDS = 2

# {"compile": one a replay, "mask": one a step of each replay in turn, "consume": the same}.
Counts = dict[str, list[int]]

# By the case's place and the side.
Counted = dict[tuple[str, str], Counts]


@dataclass(frozen=True)
class Tools:
    """What a count works with; others in tests.

    Attributes:
        clock: in seconds.
        work: does the job of a worker.
        run: counts one job with a seed.
    """

    clock: Callable[[], float] = time.monotonic
    work: Callable[[Job], Answer] = workers.spawn
    run: Callable[..., list[Dump]] = callgrind.run


TOOLS = Tools()


def count(
    base: Side,
    head: Side,
    plan: Plan,
    progress: Callable[[str], None] = lambda _: None,
    tools: Tools = TOOLS,
) -> tuple[Comparison, float]:
    """Compare two sides in instructions, within the plan's budget where MIN_SEEDS fit in it.

    Returns:
        The comparison, and the seconds that the shortest worker took: one that times takes longer.

    Raises:
        UnavailableError: instructions cannot be counted here.
        CompareError: a process under valgrind fails.
    """
    callgrind.require()
    clock = tools.clock
    started = clock()
    shortest = math.inf
    pairs: Measured = {}
    steps = 0
    differences: list[Difference] = []
    work: list[WorkCounter] = []
    functions: list[FunctionChange] = []
    costliest: list[Step] = []
    counted = []
    named = False
    for number, vocab in enumerate(plan.vocabs, 1):
        with processes.temporary_folder() as folder:
            ask = Job(
                base=base, head=head, vocab=vocab, cases=plan.cases, variant=plan.variant,
                unequal=plan.unequal, mode="count", folder=str(folder),
            )  # fmt: skip
            _say(progress, vocab, "comparing masks")
            asked = clock()
            verified = tools.work(ask)
            shortest = min(shortest, clock() - asked)
            steps += sum(c.steps for c in verified.cases.values())
            differences += verified.differences
            if not verified.cases or (differences and not plan.unequal):
                found = Comparison(
                    base, head, plan, differences=tuple(differences), steps=steps,
                    wall_s=clock() - started, ended="masks differ",
                )  # fmt: skip
                return found, shortest
            work += verified.counters
            until = started + plan.budget_s * number / len(plan.vocabs)
            say = partial(_say, progress, vocab)
            done, by_side = _processes(verified.recorded, until, say, tools)
        counted.append(len(done))
        if all(by_side[side] for side in SIDES):
            named = True
            functions += changed(by_side, vocab)
        costliest += _costliest(done, verified)
        for counts in done:
            for at, case in enumerate(verified.cases):
                base_metrics, head_metrics = (count_metrics(counts[str(at), s]) for s in SIDES)
                for metric, value in base_metrics.items():
                    pair = value, head_metrics[metric]
                    pairs.setdefault((case, vocab, metric), []).append(pair)
    wall_s = clock() - started
    # Nothing is looked at before the end, so the whole rate may be spent.
    random = np.random.default_rng(plan.seed)
    found = Comparison(
        base,
        head,
        plan,
        rows=table(pairs, plan, plan.rate, random, "instructions"),
        costliest=tuple(sorted(costliest, key=lambda s: -s.head)[:WORST]),
        counters=tuple(work),
        functions=tuple(functions),
        named=named,
        differences=tuple(differences),
        counted=min(counted),
        steps=steps,
        wall_s=wall_s,
        ended=_ended(min(counted), plan.budget_s, wall_s),
        rate=plan.rate,
    )
    return found, shortest


def _ended(counted: int, budget_s: float, wall_s: float) -> str:
    """Return why no more processes were counted."""
    if counted == SEEDS:
        return f"{counted} processes counted"
    ended = f"{counted} of {SEEDS} processes counted"
    if counted == MIN_SEEDS and wall_s > budget_s:
        return f"{ended}, the fewest there can be, in {wall_s:.0f} s of a budget of {budget_s:g} s"
    return f"{ended}, as many as the budget has room for"


def _say(progress: Callable[[str], None], vocab: str, line: str) -> None:
    progress(f"{vocab}: {line}")


def _processes(
    recorded: Sequence[Recorded],
    until: float,
    progress: Callable[[str], None],
    tools: Tools = TOOLS,
) -> tuple[list[Counted], dict[str, Counter[str]]]:
    """Count in processes, as many at once as there are cores, for as long as another one fits.

    Returns:
        The counts of each process; and by side the functions' instructions in the first, none of a
        side that has no names for most of them: functions would seem to come or go.
    """
    functions: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
    whole: Counter[str] = Counter()
    clock = tools.clock
    began = clock()
    took: list[float] = []
    progress(f"counting, {SEEDS} processes under callgrind")

    def one(seed: int) -> Counted | None:
        begun = clock()
        if seed >= MIN_SEEDS and begun + max(took, default=0.0) > until:
            return None
        dumps = tools.run(recorded[seed % len(recorded)], seed, functions=seed == 0)
        for dump in dumps:
            side = dump.name.split()[1]
            functions.setdefault(side, Counter()).update(dump.functions)
            whole[side] += dump.instructions if seed == 0 else 0
        counts = _by_case(dumps)
        took.append(clock() - begun)
        progress(f"{len(took)} of {SEEDS} processes counted, {clock() - began:.0f} s")
        return counts

    # Counts do not mind company.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        done = [counts for counts in pool.map(one, range(SEEDS)) if counts is not None]
    for side, found in functions.items():
        if found.total() < NAMED * whole[side]:
            found.clear()
    return done, functions


def changed(functions: Mapping[str, Counter[str]], vocab: str = "") -> list[FunctionChange]:
    """Return the functions whose instructions changed most, in one process, by side.

    Only those with a name, and whose change is a thousandth of the whole or more.
    """
    base, head = (functions[side] for side in SIDES)
    least = max(1, sum(base.values()) // 1000)
    moved = sorted(base.keys() | head.keys(), key=lambda name: -abs(head[name] - base[name]))
    return [
        FunctionChange(name, base[name], head[name], vocab)
        for name in moved[:MOST_CHANGED]
        if abs(head[name] - base[name]) >= least
    ]


def _costliest(done: Sequence[Counted], verified: Answer) -> list[Step]:
    """Return the steps that cost the head most instructions: the median over replays and seeds."""
    steps: list[Step] = []
    for at, (name, case) in enumerate(verified.cases.items()):
        base, head = (
            np.median(np.concatenate([_tbm(counts[str(at), side]) for counts in done]), axis=0)
            for side in SIDES
        )
        like = Step(name, verified.vocab, case.counted, 0, 0.0, 0.0, unit="instructions")
        steps += worst_of(like, base, head, WORST)
    return steps


def _tbm(counts: Counts) -> npt.NDArray[np.float64]:
    """Return mask and consume of every step together, shape (replays, steps)."""
    rounds = len(counts["compile"])
    mask = np.array(counts["mask"], float).reshape(rounds, -1)
    consume = np.array(counts["consume"], float).reshape(rounds, -1)
    tbm: npt.NDArray[np.float64] = record_times.tbm(mask, consume)
    return tbm


def count_metrics(counts: Counts) -> dict[str, float]:
    """Return the metrics of one process and side, in instructions.

    Every step is counted exactly, so that percentiles are those of these very steps and need no
    samples above them.
    """
    tbm = _tbm(counts)
    compiled = np.array(counts["compile"], np.uint64).reshape(-1, 1)
    masks = np.array(counts["mask"], np.uint64).reshape(len(tbm), -1)
    ttfm = stats.pool(record_times.ttfms(list(compiled), list(masks)))
    return {
        "TBM mean": float(tbm.mean()),
        "TBM p50": float(np.percentile(tbm, 50)),
        "TBM p99": float(np.percentile(tbm, 99)),
        "TBM max": float(np.median(tbm, axis=0).max()),
        "TTFM": float(np.mean(ttfm)),
        "consume": float(np.median(counts["consume"])),
    }


def _by_case(dumps: Sequence[Dump]) -> Counted:
    """Return the counts by the case's place and side, see worker.to_count."""
    found: Counted = {}
    for dump in dumps:
        case, side, what = dump.name.split()
        found.setdefault((case, side), {}).setdefault(what, []).append(dump.instructions)
    return found
