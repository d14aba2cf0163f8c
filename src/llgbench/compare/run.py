"""Runs comparisons: two engines, several processes, until the answer is clear or time is up.

Every process loads both sides and replays them in turn (compare_worker); what is compared is the
ratio within a process, over processes. docs/method.md says why.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from llgbench import files, paths, processes
from llgbench.compare import counting, inference, pyperf_files, sides
from llgbench.compare.comparison import IDENTICAL, Comparison, Plan, headline, measured, table
from llgbench.compare.inference import MIN_PROCESSES
from llgbench.compare.sides import SIDES, Side
from llgbench.compare.worker import Job
from llgbench.compare.workers import WorkerLostError, spawn
from llgbench.errors import CompareError, RecordError
from llgbench.inputs import case_file, variant
from llgbench.inputs.configuration import CHECKPOINTS, QUICK_JSON_CASES, QUICK_LEXER_CASES
from llgbench.llama import vocab

# The processes after which the data are looked at for an early end; then every time 1.5 as many.
FIRST_LOOK = 8

# After a count the clock is not begun for less: MIN_PROCESSES would not fit.
LEAST_FOR_THE_CLOCK_S = 10.0


def compare(
    base: Side,
    head: Side,
    plan: Plan,
    progress: Callable[[str], None] = lambda _: None,
    *,
    clock: Callable[[], float] = time.monotonic,
    work: Callable[[Job], dict[str, Any]] | None = None,
) -> Comparison:
    """Compare two sides by the clock.

    Args:
        base: one side.
        head: the other; a copy of the base for the noise floor.
        plan: how.
        progress: called with a line now and then.
        clock: in seconds.
        work: does one process's job; a subprocess unless given.

    Raises:
        CompareError: fewer than MIN_PROCESSES processes gave a result.
    """
    work = work or spawn
    started = clock()
    found = Comparison(base, head, plan)
    random = np.random.default_rng(plan.seed)
    longest, number, look, next_look = 0.0, 0, 0, FIRST_LOOK
    seconds = _fit(plan, 0.0)
    found.ended = "the budget ended"
    while True:
        left = plan.budget_s - (clock() - started)
        if number and left < longest:
            break
        vocab = plan.vocabs[number % len(plan.vocabs)]
        job = Job(number, base, head, vocab, plan.variant, plan.cases, seconds, plan.unequal)
        begun = clock()
        try:
            result = work(job)
        except WorkerLostError as error:
            found.lost.append(f"process {number + 1}: {error}")
            if len(found.lost) > 2 and len(found.lost) > len(found.processes):
                raise CompareError(f"the workers do not live: {found.lost[-1]}") from None
        else:
            _take(found, result, vocab)
            if result["differences"] and not plan.unequal:
                found.ended = "masks differ"
                found.wall_s = clock() - started
                return found
            if not result["cases"]:
                found.ended = "masks differ in every case"
                found.wall_s = clock() - started
                return found
            if number == 0:
                seconds = _fit(plan, result["setup_s"])
        number += 1
        longest = max(longest, clock() - begun)
        enough = len(found.processes) // len(plan.vocabs)
        if enough >= next_look:
            look += 1
            next_look = math.ceil(enough * 1.5)
            found.rows = table(
                measured(found.processes), plan, inference.spend(plan.rate, look), random
            )
            progress(f"{len(found.processes)} processes: {headline(found)}")
            if found.slower or found.clear:
                found.ended = "the answer was clear"
                break
    if len(found.processes) < MIN_PROCESSES * len(plan.vocabs):
        raise CompareError(
            f"{len(found.processes)} processes fit in the budget of {plan.budget_s:g} s, at least "
            f"{MIN_PROCESSES * len(plan.vocabs)} are needed; raise --budget or give fewer cases"
        )
    if found.ended != "the answer was clear":
        rate = inference.spend(plan.rate, look + 1)
        found.rows = table(measured(found.processes), plan, rate, random)
    found.wall_s = clock() - started
    return found


def _take(found: Comparison, result: dict[str, Any], vocab: str) -> None:
    result["vocab"] = vocab
    if not any(p["vocab"] == vocab for p in found.processes):
        found.steps += sum(c["steps"] for c in result["cases"].values())
        found.differences += [{**d, "vocab": vocab} for d in result["differences"]]
    if result["cases"] and (found.plan.unequal or not result["differences"]):
        found.processes.append(result)


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
    chosen = tuple(dict.fromkeys(cases)) or (*QUICK_JSON_CASES, *QUICK_LEXER_CASES, *CHECKPOINTS)
    loaded = [case_file.load(name) for name in chosen]
    # A folder is told by its path, and replayed under it.
    names = tuple(
        given if "/" in given else c.name for given, c in zip(chosen, loaded, strict=True)
    )
    for name in vocabs or ("llama-bpe",):
        vocab.rehearse(name)
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
    """Resolve, compare, write the files.

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
    stamped = paths.root() / "comparisons" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    with files.folder(folder or stamped, numbered=folder is None, error=RecordError) as where:
        if head_spec is not None and base.is_same_as(head):
            found = Comparison(base, head, plan, ended=IDENTICAL)
        else:
            with processes.temporary_folder() as place:
                copies = (
                    sides.private(base, place, SIDES[0]),
                    sides.private(head, place, SIDES[1]),
                )
                found = (_by_count if count else compare)(*copies, plan, say)
            found.base, found.head = base, head
        found.self_test = head_spec is None
        _write(found, where)
    return found, where


def _by_count(base: Side, head: Side, plan: Plan, say: Callable[[str], None]) -> Comparison:
    """Count first, then time with what is left of the budget; the counts decide."""
    started = time.monotonic()
    counted = counting.count(base, head, plan, say)
    left = plan.budget_s - (time.monotonic() - started)
    if (counted.differences and not counted.rows) or left < LEAST_FOR_THE_CLOCK_S:
        return counted
    try:
        timed = compare(base, head, replace(plan, budget_s=left, threshold=0.02), say)
        counted.clock, counted.processes, counted.lost = timed.rows, timed.processes, timed.lost
    except CompareError as error:
        say(f"no time left for the clock: {error}")
    counted.wall_s = time.monotonic() - started
    return counted


def _write(found: Comparison, where: Path) -> None:
    text = json.dumps(found.to_json(), indent=1)
    files.write(where / "comparison.json", text, error=RecordError)
    if found.processes:
        pyperf_files.write(where, measured(found.processes), found.processes)
