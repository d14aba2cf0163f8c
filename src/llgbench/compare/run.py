"""Runs comparisons: two engines, several processes, until the answer is clear or time is up.

Every process loads both sides and replays them in turn (worker.py); what is compared is the ratio
within a process, over processes. docs/method.md says why.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from llgbench import files, paths, processes
from llgbench.compare import comparison as comparisons
from llgbench.compare import (
    counting,
    explain,
    inference,
    metrics,
    pyperf_files,
    sides,
    table,
    workers,
)  # fmt: skip
from llgbench.compare.comparison import ALL, DEFAULT_CASES, IDENTICAL, Comparison, Machine, Plan
from llgbench.compare.facts import Common, Difference, WorkCounter
from llgbench.compare.inference import MIN_PROCESSES
from llgbench.compare.messages import Answer, Job
from llgbench.compare.side import Side
from llgbench.compare.table import Measured
from llgbench.compare.words import headline
from llgbench.compare.workers import WorkerLostError
from llgbench.errors import CompareError, RecordError
from llgbench.inputs import case_file, variant
from llgbench.llama import trial
from llgbench.measure import provenance

# The processes after which the data are looked at for an early end; then every time 1.5 as many.
FIRST_LOOK = 8

# What a process that times takes at least, beside its set-up.
_LEAST_S = 1.0

_CLEAR = "the answer was clear"


@dataclass(frozen=True)
class Timed:
    """A comparison by the clock, with what its processes measured.

    Attributes:
        comparison: what it found.
        measured: metrics of every process.
        answers: of the processes, in order.
    """

    comparison: Comparison
    measured: Measured
    answers: tuple[Answer, ...]


def compare(
    base: Side,
    head: Side,
    plan: Plan,
    progress: Callable[[str], None] = lambda _: None,
    *,
    clock: Callable[[], float] = time.monotonic,
    work: Callable[[Job], Answer] | None = None,
) -> Timed:
    """Compare two sides by the clock.

    Args:
        base: one side.
        head: the other; a copy of the base for the noise floor.
        plan: how.
        progress: called with a line now and then.
        clock: in seconds.
        work: does one process's job; a subprocess unless given.

    Raises:
        CompareError: fewer than MIN_PROCESSES processes gave an answer.
    """
    work = work or workers.spawn
    started = clock()
    gathered = _Gathered(plan)
    random = np.random.default_rng(plan.seed)
    longest, shortest, number, look, next_look = 0.0, math.inf, 0, 0, FIRST_LOOK
    seconds = _fit(plan, 0.0)

    def timed(ended: str) -> Timed:
        """Return what is known, with a look at the data unless nothing may be said yet."""
        found = Comparison(
            base, head, plan, counters=tuple(gathered.counters), lost=tuple(gathered.lost),
            differences=tuple(gathered.differences), common=tuple(gathered.common),
            processes=len(gathered.answers), steps=gathered.steps,
            wall_s=clock() - started, ended=ended,
        )  # fmt: skip
        if look:
            rate = inference.spend(plan.rate, look)
            rows = table.table(gathered.measured, plan, rate, random)
            found = replace(found, rows=rows, rate=rate)
        return Timed(found, gathered.measured, tuple(gathered.answers))

    while True:
        left = plan.budget_s - (clock() - started)
        if number and left < longest:
            break
        job = Job(
            base=base, head=head, vocab=plan.vocabs[number % len(plan.vocabs)], cases=plan.cases,
            variant=plan.variant, number=number, seconds=seconds, unequal=plan.unequal,
            white_space=plan.white_space,
        )  # fmt: skip
        begun = clock()
        try:
            answer = work(job)
        except WorkerLostError as error:
            gathered.lost.append(f"process {number + 1}: {error}")
            if len(gathered.lost) > 2 and len(gathered.lost) > len(gathered.answers):
                raise CompareError(f"the workers do not live: {gathered.lost[-1]}") from None
        else:
            gathered.take(answer)
            if answer.differences and not plan.unequal:
                return timed("masks differ")
            if not answer.cases:
                return timed("masks differ in every case")
            if number == 0:
                seconds = _fit(plan, answer.setup_s)
        number += 1
        now = clock()
        longest, shortest = max(longest, now - begun), min(shortest, now - begun)
        wanted = MIN_PROCESSES * len(plan.vocabs) - len(gathered.answers)
        if number > 1 and wanted * shortest > plan.budget_s - (now - started):
            break  # it would be too few in the end as well
        enough = len(gathered.answers) // len(plan.vocabs)
        if enough >= next_look:
            look += 1
            next_look = math.ceil(enough * 1.5)
            so_far = timed(_CLEAR)
            progress(f"{len(gathered.answers)} processes: {headline(so_far.comparison)}")
            if so_far.comparison.slower or so_far.comparison.clear:
                return _finished(so_far)
    if len(gathered.answers) < MIN_PROCESSES * len(plan.vocabs):
        raise CompareError(
            f"the budget of {plan.budget_s:g} s has no room for {MIN_PROCESSES * len(plan.vocabs)} "
            f"processes, which are needed at least: one takes {shortest:.0f} s or more here; raise "
            "--budget or give fewer cases"
        )
    look += 1
    return _finished(timed("the budget ended"))


class _Gathered:
    """What the processes of a comparison have answered so far."""

    def __init__(self, plan: Plan) -> None:
        self._unequal = plan.unequal
        self._seen: set[str] = set()
        self.answers: list[Answer] = []
        self.measured: Measured = {}
        self.differences: list[Difference] = []
        self.common: list[Common] = []
        self.counters: list[WorkCounter] = []
        self.lost: list[str] = []
        self.steps = 0

    def take(self, answer: Answer) -> None:
        """Take an answer; facts, which are the same in each, from the first of a vocab."""
        if answer.vocab not in self._seen:
            self._seen.add(answer.vocab)
            self.steps += sum(c.steps for c in answer.cases.values())
            self.differences += answer.differences
            self.common += answer.common
            self.counters += answer.counters
        if answer.cases and (self._unequal or not answer.differences):
            self.answers.append(answer)
            metrics.add(self.measured, answer)


def _finished(timed: Timed) -> Timed:
    """Return a comparison that has come to its end with what is told of all its answers."""
    pooled: Measured = {}
    processes_of: dict[str, int] = {}
    for answer in timed.answers:
        metrics.pool(pooled, answer, ALL)
        processes_of[answer.vocab] = processes_of.get(answer.vocab, 0) + 1
    seed = timed.comparison.plan.seed
    found = replace(
        timed.comparison,
        pooled=table.pooled(pooled, processes_of, seed),
        costliest=tuple(metrics.costliest(timed.answers)),
    )
    return replace(timed, comparison=found)


def _fit(plan: Plan, setup_s: float) -> float:
    """Return how long a process should measure so that the first two looks fit in the budget."""
    wanted = plan.budget_s / (2 * FIRST_LOOK * len(plan.vocabs)) - setup_s
    return min(max(wanted, 1.0), plan.seconds)


# ---- the whole of a command ----


def plan_of(
    cases: Sequence[str] = (),
    vocabs: Sequence[str] = (),
    variant_name: str = "greedy_tokenize",
    threshold: float | None = None,
    budget_s: float = 300.0,
    *,
    unequal: bool = False,
    count: bool = False,
) -> Plan:
    """Return the plan of a comparison, every name of it checked.

    Without cases they are those of the quick profile; the threshold is 2% by the clock, 0.5% in
    instructions.

    Raises:
        UnknownNameError: a case, vocab or variant of that name does not exist.
        VocabError, UnavailableError: a vocab cannot be opened.
    """
    variant.get(variant_name)
    chosen = tuple(dict.fromkeys(cases)) or DEFAULT_CASES
    loaded = [case_file.load(name) for name in chosen]
    # A folder is told by its path, and replayed under it.
    names = tuple(name if "/" in name else c.name for name, c in zip(chosen, loaded, strict=True))
    for name in vocabs or ("llama-bpe",):
        trial.rehearse(name)
    return Plan(
        vocabs=tuple(dict.fromkeys(vocabs)) or ("llama-bpe",),
        cases=names,
        variant=variant_name,
        threshold=threshold if threshold is not None else (0.005 if count else 0.02),
        budget_s=budget_s,
        unequal=unequal,
    )


def run(
    base_spec: str,
    head_spec: str | None,
    plan: Plan,
    folder: Path | None = None,
    *,
    count: bool = False,
    say: Callable[[str], None] = lambda _: None,
    announce: Callable[[str], None] = lambda _: None,
) -> tuple[Comparison, Path]:
    """Resolve, compare, explain, write the files.

    Args:
        base_spec: BASE as given.
        head_spec: HEAD as given; None compares the base with a copy of itself.
        plan: how.
        folder: where the files go; a new folder under comparisons/ where None.
        count: let instructions decide; the clock gets what is left of the budget.
        say: called with lines of progress.
        announce: called with what nobody should miss: what is fetched, and whose code is built.

    Returns:
        The comparison and the folder of comparison.json, base.json and head.json.
    """
    base = sides.resolve(base_spec, announce)
    head = sides.twin(base) if head_spec is None else sides.resolve(head_spec, announce)

    def measure() -> Timed:
        if head_spec is not None and base.is_same_as(head):
            return Timed(Comparison(base, head, plan, ended=IDENTICAL), {}, ())
        with processes.temporary_folder() as place:
            copies = sides.private(base, place, "base"), sides.private(head, place, "head")
            timed = (_by_count if count else compare)(*copies, plan, say)
            found = replace(explain.in_comparison(timed.comparison, say), base=base, head=head)
            return replace(timed, comparison=found)

    return kept(measure, folder, self_test=head_spec is None)


def kept(
    measure: Callable[[], Timed], folder: Path | None, *, self_test: bool
) -> tuple[Comparison, Path]:
    """Measure, and write the files; return the comparison and their folder.

    Args:
        measure: compares; called once the folder is known to be writable.
        folder: where the files go; a new folder under comparisons/ where None.
        self_test: whether both sides are the same engine.
    """
    stamped = paths.root() / "comparisons" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    with files.folder(folder or stamped, numbered=folder is None, error=RecordError) as where:
        timed = measure()
        found = replace(timed.comparison, self_test=self_test, machine=_machine())
        comparisons.write(found, where / "comparison.json")
        if timed.answers:
            pyperf_files.write(where, timed.measured, timed.answers)
    return found, where


def _by_count(
    base: Side,
    head: Side,
    plan: Plan,
    say: Callable[[str], None],
    tools: counting.Tools = counting.TOOLS,
) -> Timed:
    """Count first, then time with what is left of the budget; the counts decide."""
    clock = tools.clock
    started = clock()
    counted, worker_s = counting.count(
        sides.countable(base), sides.countable(head), plan, say, tools
    )
    left = plan.budget_s - (clock() - started)
    room = MIN_PROCESSES * len(plan.vocabs) * (worker_s + _LEAST_S) <= left
    if (counted.differences and not counted.rows) or not room:
        return Timed(counted, {}, ())
    try:
        timed = compare(
            base, head, replace(plan, budget_s=left, threshold=0.02), say,
            clock=clock, work=tools.work,
        )  # fmt: skip
    except CompareError as error:
        say(f"no time left for the clock: {error}")
        return Timed(replace(counted, wall_s=clock() - started), {}, ())
    by_clock = timed.comparison
    found = replace(
        counted,
        clock=by_clock.rows,
        pooled=by_clock.pooled,
        costliest=by_clock.costliest or counted.costliest,
        processes=by_clock.processes,
        lost=by_clock.lost,
        wall_s=clock() - started,
    )
    return replace(timed, comparison=found)


def _machine() -> Machine:
    found = provenance.machine()
    return Machine(found["cpu"], found["cores"], found["governor"], found["system"])
