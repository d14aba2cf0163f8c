"""A comparison whose head costs a fifth more, from made-up processes of a real case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from made_answers import answer, times

from llgbench.compare import run as compare
from llgbench.compare.comparison import Comparison, Machine, Plan
from llgbench.compare.facts import Difference, FunctionChange, Step, WorkCounter
from llgbench.compare.messages import Answer, Job, SideTimes
from llgbench.compare.side import Pair, Side

BASE = Side("old", Path("/x/old.so"), None, "1.0", "0" * 64)
HEAD = Side("new", Path("/x/new.so"), None, "1.1", "1" * 64, "c" * 40)

STEPS, PLANTED = 60, 41


def work(job: Job, ratio: float = 1.2) -> Answer:
    """One process: step PLANTED costs nine times as much as any other, at both sides."""
    random = np.random.default_rng(job.number)

    def of(scale: float) -> SideTimes:
        masks = np.full(STEPS, int(1e5 * scale), np.uint64)
        masks[PLANTED] = int(9e5 * scale)
        return times([masks] * 6, compile_ns=1e6, consume_ns=1000)

    return answer(
        of(1.0), of(ratio * random.lognormal(0, 0.003)), job.cases, job.vocab, steps=STEPS,
        tokenizer_ns=Pair(10**8, 10**8 + job.number),
    )  # fmt: skip


def compared(ratio: float = 1.2) -> Comparison:
    """Compare made-up sides until the answer is clear; nothing is explained yet."""
    plan = Plan(("v",), ("a", "b"))
    return compare.compare(BASE, HEAD, plan, work=lambda job: work(job, ratio)).comparison


def everything() -> Comparison:
    """A comparison with something in every field."""
    found = compared()
    step = found.costliest[0]
    return replace(
        found,
        clock=found.rows[:2],
        costliest=(
            replace(step, so_far='{"a', token='":', allowed=7, expects="a-z", accepting=True),
            Step("a", "v", "t", 3, 5.0, 6.0, unit="instructions"),
        ),
        counters=(WorkCounter("a", "rows", 10, 12, "v"), WorkCounter("b", "rows", 5, 5, "v")),
        functions=(FunctionChange("f::g<T>", 100, 250, "v"),),
        differences=(
            Difference(
                "c", "t", 3, "{", '"', Pair(2, 1), Pair(((7, "x"),), ()), Pair(1, 0),
                Pair("whole", "rejected"), "v",
            ),
        ),
        lost=("process 3: killed by SIGKILL",),
        machine=Machine("A CPU", 2, None, "Linux"),
    )  # fmt: skip
