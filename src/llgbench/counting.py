"""Comparisons in instructions: the replay under callgrind, for machines too noisy for a clock.

A process counts one replay of one text a case by both sides, call by call. What differs between
processes is the hash seeds, which both sides of a process share; so a few processes are enough.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from llgbench import callgrind, workers
from llgbench.compare_worker import Job
from llgbench.comparison import Comparison, Measured, Plan, table
from llgbench.sides import SIDES, Side

# Processes, each with seeds of its own, which move a count by some tenths of a percent.
SEEDS = 5

# {"compile": one a replay, "mask": one a step of each replay in turn, "consume": the same}.
Counts = dict[str, list[int]]


def count(
    base: Side, head: Side, plan: Plan, progress: Callable[[str], None] = lambda _: None
) -> Comparison:
    """Compare two sides in instructions.

    Raises:
        UnavailableError: there is no valgrind.
        CompareError: a process under valgrind fails.
    """
    callgrind.require()
    started = time.monotonic()
    found = Comparison(base, head, plan)
    pairs: Measured = {}
    for vocab in plan.vocabs:
        ask = Job(0, base, head, vocab, plan.variant, plan.cases, 0, plan.unequal, "verify")
        verified = workers.spawn(ask)
        found.steps += sum(c["steps"] for c in verified["cases"].values())
        found.differences += [{**d, "vocab": vocab} for d in verified["differences"]]
        if not verified["cases"] or (found.differences and not plan.unequal):
            found.ended = "masks differ"
            return found
        found.counters += [{**c, "vocab": vocab} for c in verified["counters"]]
        cases = tuple(verified["cases"])
        progress(f"counting on {vocab}: {SEEDS} processes under callgrind")
        jobs = [
            Job(seed, base, head, vocab, plan.variant, cases, 0, plan.unequal, "count")
            for seed in range(SEEDS)
        ]
        # Counts do not mind company: as many at once as there are cores.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            done = list(pool.map(_count, jobs))
        for counts in done:
            for case in cases:
                metrics = [count_metrics(counts[case, side]) for side in SIDES]
                for metric, value in metrics[0].items():
                    pair = value, metrics[1][metric]
                    pairs.setdefault((case, vocab, metric), []).append(pair)
    # Nothing is looked at before the end, so the whole rate may be spent.
    found.rows = table(pairs, plan, plan.rate, np.random.default_rng(plan.seed), "instructions")
    found.wall_s = time.monotonic() - started
    found.ended = f"{SEEDS} processes counted"
    return found


def count_metrics(counts: Counts) -> dict[str, float]:
    """Return the metrics of one process and side, in instructions.

    Every step is counted exactly, so that percentiles are those of these very steps and need no
    samples above them.
    """
    rounds = len(counts["compile"])
    mask = np.array(counts["mask"], float).reshape(rounds, -1)
    consume = np.array(counts["consume"], float).reshape(rounds, -1)
    tbm = mask[:, : consume.shape[1]] + consume
    return {
        "TBM mean": float(tbm.mean()),
        "TBM p50": float(np.percentile(tbm, 50)),
        "TBM p99": float(np.percentile(tbm, 99)),
        "TBM max": float(np.median(tbm.max(axis=1))),
        "TTFM": float(np.mean(np.array(counts["compile"]) + mask[:, 0])),
        "consume": float(np.median(consume)),
    }


def _count(job: Job) -> dict[tuple[str, str], Counts]:
    """Run a worker under callgrind; return the counts by case and side."""
    result, dumps = callgrind.run("llgbench.compare_worker", job.to_json(), job.number)
    by_label = {case["label"]: name for name, case in result["cases"].items()}
    found: dict[tuple[str, str], Counts] = {}
    for dump in dumps:
        label, side, what = dump.name.split()
        counts = found.setdefault((by_label[label], side), {})
        counts.setdefault(what, []).append(dump.instructions)
    return found
