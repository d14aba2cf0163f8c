"""Comparisons in instructions: the replay under callgrind, for machines too noisy for a clock.

A worker compares the masks and prepares the job (compare_worker.to_count). A process under
callgrind then counts replays of one text per case by both sides, call by call. What differs between
processes is the hash seeds, which both sides of a process share; so a few processes are enough.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from llgbench import processes
from llgbench.compare import workers
from llgbench.compare.comparison import Comparison, Measured, Plan, table
from llgbench.compare.sides import SIDES, Side
from llgbench.compare.worker import Job
from llgbench.measure import callgrind
from llgbench.measure.callgrind import Dump
from llgbench.measure.counter import Recorded
from llgbench.records import times

# Processes, each with seeds of its own, which move a count by some tenths of a percent.
SEEDS = 5

MOST_CHANGED = 5

# So many are counted whatever the budget: fewer have no spread.
MIN_SEEDS = 2

# {"compile": one a replay, "mask": one a step of each replay in turn, "consume": the same}.
Counts = dict[str, list[int]]


def count(
    base: Side, head: Side, plan: Plan, progress: Callable[[str], None] = lambda _: None
) -> Comparison:
    """Compare two sides in instructions, within the plan's budget where MIN_SEEDS fit in it.

    Raises:
        UnavailableError: instructions cannot be counted here.
        CompareError: a process under valgrind fails.
    """
    callgrind.require()
    started = time.monotonic()
    found = Comparison(base, head, plan)
    pairs: Measured = {}
    counted = []
    for number, vocab in enumerate(plan.vocabs, 1):
        with processes.temporary_folder() as folder:
            ask = Job(
                0, base, head, vocab, plan.variant, plan.cases, 0, plan.unequal, "count",
                str(folder),
            )  # fmt: skip
            _say(progress, vocab, "comparing masks")
            verified = workers.spawn(ask)
            found.steps += sum(c["steps"] for c in verified["cases"].values())
            found.differences += [{**d, "vocab": vocab} for d in verified["differences"]]
            if not verified["cases"] or (found.differences and not plan.unequal):
                found.ended = "masks differ"
                return found
            found.counters += [{**c, "vocab": vocab} for c in verified["counters"]]
            recorded = [Recorded.from_json(r) for r in verified["recorded"]]
            until = started + plan.budget_s * number / len(plan.vocabs)
            done, functions = _processes(recorded, until, partial(_say, progress, vocab))
            found.functions += [{"vocab": vocab, **f} for f in changed(functions)]
        counted.append(len(done))
        for counts in done:
            for at, case in enumerate(verified["cases"]):
                metrics = [count_metrics(counts[str(at), side]) for side in SIDES]
                for metric, value in metrics[0].items():
                    pair = value, metrics[1][metric]
                    pairs.setdefault((case, vocab, metric), []).append(pair)
    # Nothing is looked at before the end, so the whole rate may be spent.
    found.rows = table(pairs, plan, plan.rate, np.random.default_rng(plan.seed), "instructions")
    found.wall_s = time.monotonic() - started
    found.counted = min(counted)
    found.ended = f"{found.counted} processes counted"
    if found.counted < SEEDS:
        found.ended += f" of {SEEDS}, the budget ended"
    return found


def _say(progress: Callable[[str], None], vocab: str, line: str) -> None:
    progress(f"{vocab}: {line}")


def _processes(
    recorded: Sequence[Recorded], until: float, progress: Callable[[str], None]
) -> tuple[list[dict[tuple[str, str], Counts]], dict[str, Counter[str]]]:
    """Count in processes, as many at once as there are cores, for as long as another one fits.

    Returns:
        The counts of each process; and by side the functions' instructions in the first.
    """
    functions: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
    began = time.monotonic()
    took: list[float] = []
    progress(f"counting, {SEEDS} processes under callgrind")

    def one(seed: int) -> dict[tuple[str, str], Counts] | None:
        begun = time.monotonic()
        if seed >= MIN_SEEDS and begun + max(took, default=0.0) > until:
            return None
        dumps = callgrind.run(recorded[seed % len(recorded)], seed, functions=seed == 0)
        for dump in dumps:
            functions.setdefault(dump.name.split()[1], Counter()).update(dump.functions)
        counts = _by_case(dumps)
        took.append(time.monotonic() - begun)
        progress(f"{len(took)} of {SEEDS} processes counted, {time.monotonic() - began:.0f} s")
        return counts

    # Counts do not mind company.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        done = [counts for counts in pool.map(one, range(SEEDS)) if counts is not None]
    return done, functions


def changed(functions: Mapping[str, Counter[str]]) -> list[dict[str, Any]]:
    """Return the functions whose instructions changed most, in one process, by side.

    Only those with a name, and whose change is a thousandth of the whole or more.
    """
    base, head = (functions[side] for side in SIDES)
    least = max(1, sum(base.values()) // 1000)
    moved = sorted(base.keys() | head.keys(), key=lambda name: -abs(head[name] - base[name]))
    return [
        {"function": name, "base": base[name], "head": head[name]}
        for name in moved[:MOST_CHANGED]
        if abs(head[name] - base[name]) >= least
    ]


def count_metrics(counts: Counts) -> dict[str, float]:
    """Return the metrics of one process and side, in instructions.

    Every step is counted exactly, so that percentiles are those of these very steps and need no
    samples above them.
    """
    rounds = len(counts["compile"])
    mask = np.array(counts["mask"], float).reshape(rounds, -1)
    consume = np.array(counts["consume"], float).reshape(rounds, -1)
    tbm = times.tbm(mask, consume)
    return {
        "TBM mean": float(tbm.mean()),
        "TBM p50": float(np.percentile(tbm, 50)),
        "TBM p99": float(np.percentile(tbm, 99)),
        "TBM max": float(np.median(tbm, axis=0).max()),
        "TTFM": float(np.mean(np.array(counts["compile"]) + mask[:, 0])),
        "consume": float(np.median(consume)),
    }


def _by_case(dumps: Sequence[Dump]) -> dict[tuple[str, str], Counts]:
    """Return the counts by the case's place and side, see compare_worker.to_count."""
    found: dict[tuple[str, str], Counts] = {}
    for dump in dumps:
        case, side, what = dump.name.split()
        found.setdefault((case, side), {}).setdefault(what, []).append(dump.instructions)
    return found
