"""Counts the masks of two engines step by step under callgrind, over vocabularies and schemas.

A process opens both engines, compares the masks of every text bit by bit, and prepares the job;
processes under callgrind then count the longest accepted text of each case.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from llgbench import isolated, paths, processes
from llgbench.compare import sides, words
from llgbench.compare.facts import Difference
from llgbench.compare.masks import MASKBENCH, Masks, Refused, TextMasks
from llgbench.compare.side import SIDES, Pair, Side
from llgbench.compare.worker import COUNTED_STEPS, compared, subjects
from llgbench.engines.engine import load
from llgbench.errors import CompareError, InputError, LlgbenchError, UnavailableError
from llgbench.inputs import case_file
from llgbench.inputs.case import Case
from llgbench.inputs.maskbench import load_maskbench
from llgbench.inputs.variant import get
from llgbench.llama import bridge
from llgbench.llama.vocab import open_vocab
from llgbench.measure import callgrind, provenance
from llgbench.measure.counter import MASK, PER_CALL, Compile, Free, JobBuilder, Recorded, Replay

# MaskBench files in one process: opening a vocabulary under valgrind takes longer than a file.
_FILES = 20

_MATCHER = 0

_SECONDS = 3600.0


@dataclass(frozen=True)
class Plan:
    """What is counted.

    Attributes:
        vocabs: names of vocabularies; on each, all cases.
        cases: by name.
        maskbench: a folder of MaskBench files, or None.
        maskbench_vocab: the vocabulary of these.
        variant: the bridge of both engines.
        seeds: how many processes count each text.
    """

    vocabs: tuple[str, ...]
    cases: tuple[str, ...]
    maskbench: Path | None
    maskbench_vocab: str
    variant: str
    seeds: int


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one process verifies and prepares.

    Attributes:
        base: one side.
        head: the other.
        vocab: its name.
        variant: the bridge of both.
        cases: by name.
        maskbench: a folder, instead of cases.
        first: of its files, the first.
        folder: where the job's files go.
    """

    base: Side
    head: Side
    vocab: str
    variant: str
    cases: tuple[str, ...] = ()
    maskbench: str | None = None
    first: int = 0
    folder: str = ""

    @property
    def name(self) -> str:
        """What the job is called where it cannot be done."""
        return self.vocab if self.maskbench is None else f"{MASKBENCH} from file {self.first} on"

    def group(self, case: str) -> str:
        """Return what the table calls a case."""
        return case if self.maskbench is None else MASKBENCH

    def load(self) -> list[Case]:
        """Return the cases."""
        if self.maskbench is None:
            return [case_file.load(name) for name in self.cases]
        return load_maskbench(Path(self.maskbench), part=slice(self.first, self.first + _FILES))


@dataclass(frozen=True)
class Prepared:
    """What a process answers.

    Attributes:
        counted: (case, text) of each case that is counted, in the job's order.
        verified: how many masks were compared.
        differences: the first of each case whose masks differ.
        refused: why a case is not counted, by case.
        recorded: the job; None where nothing is counted.
    """

    counted: tuple[tuple[str, str], ...] = ()
    verified: int = 0
    differences: tuple[Difference, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    recorded: Recorded | None = None


def prepare(job: Job) -> Prepared:
    """Compare the masks of every text, and prepare the count; in a process of its own.

    Raises:
        VocabError, UnavailableError: the vocabulary cannot be opened.
        EngineError: an engine cannot be loaded.
    """
    variant, sides_of = get(job.variant), Pair(job.base, job.head)
    counted: list[tuple[str, str]] = []
    differences: list[Difference] = []
    refused: dict[str, str] = {}
    verified = 0
    builder = JobBuilder()
    with ExitStack() as stack:
        vocab = stack.enter_context(open_vocab(job.vocab))
        engines = sides_of.map(lambda side: load(side.library))
        tokenizers = engines.map(lambda e: stack.enter_context(bridge.build(e, vocab, variant)))
        numbers = engines.map(lambda e: builder.tokenizer(e, vocab, variant))
        for case in job.load():
            pair = subjects(case, sides_of, tokenizers)
            try:
                traces, difference, masks = compared(pair, case, vocab)
            except (CompareError, UnavailableError) as error:
                refused[case.name] = " ".join(str(error).split())
                continue
            verified += masks
            if difference is not None:
                differences.append(replace(difference, vocab=job.vocab))
                continue
            accepted = [
                at for at, text in enumerate(case.texts) if text.stock and text.stock.accepted
            ]
            if not accepted:
                refused[case.name] = "no text of it is accepted"
                continue
            longest = max(accepted, key=lambda at: len(traces[at]))
            trace = np.ascontiguousarray(traces[longest][:COUNTED_STEPS])
            for side in SIDES:
                builder.add(
                    Compile(_MATCHER, numbers.of(side), pair.of(side).grammar),
                    Replay(_MATCHER, trace, MASK, PER_CALL, f"{len(counted)} {side}"),
                    Free(_MATCHER),
                )
            counted.append((case.name, case.texts[longest].name))
        recorded = builder.record(Path(job.folder)) if counted else None
    return Prepared(tuple(counted), verified, tuple(differences), refused, recorded)


def run(
    base_spec: str,
    head_spec: str,
    plan: Plan,
    progress: Callable[[int, int, str], None] = lambda *_: None,
    announce: Callable[[str], None] = lambda _: None,
) -> Masks:
    """Resolve two engines, and count their masks, as many jobs at once as there are cores.

    Args:
        base_spec: one engine.
        head_spec: the other.
        plan: on what.
        progress: called after each job with how many are done, of how many, and its vocabulary.
        announce: called with a line where something is fetched or built.

    Raises:
        UnknownNameError, UnavailableError, EngineError, InputError: an engine, a case or valgrind
            cannot be had.
        CaseError: a MaskBench file is malformed.
        CompareError: a process under valgrind fails.
    """
    callgrind.require()
    base, head = sides.resolve(base_spec, announce), sides.resolve(head_spec, announce)
    if base.is_same_as(head):
        raise InputError(f"{base_spec} and {head_spec} are the same library; nothing can differ")
    get(plan.variant)
    for name in plan.cases:
        case_file.load(name)
    about = provenance.collect(paths.root())
    found = Masks(str(base), str(head), plan.variant, plan.seeds, provenance=about)
    empty = replace(found, provenance={})
    done = itertools.count(1)
    with processes.temporary_folder() as place:
        private = [
            sides.countable(sides.private(side, place, name))
            for side, name in ((base, "base"), (head, "head"))
        ]
        jobs = _jobs(private[0], private[1], plan)

        def one(job: Job) -> Masks:
            part = _counted(job, empty)
            progress(next(done), len(jobs), job.vocab)
            return part

        # Counts do not mind company.
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for part in pool.map(one, jobs):
                found = _joined(found, part)
    if not found.texts and not found.differences:
        why = next(iter(found.unavailable.values()), "no text is accepted by both with equal masks")
        raise CompareError(f"nothing was counted: {why}")
    return found


def _jobs(base: Side, head: Side, plan: Plan) -> list[Job]:
    """Return a job for each vocabulary, and one for every so many MaskBench files."""
    common = Job(base=base, head=head, vocab="", variant=plan.variant)
    found = [replace(common, vocab=vocab, cases=plan.cases) for vocab in plan.vocabs]
    if plan.maskbench is None:
        return found
    return found + [
        replace(common, vocab=plan.maskbench_vocab, maskbench=str(plan.maskbench), first=first)
        for first in range(0, len(load_maskbench(plan.maskbench)), _FILES)
    ]


def _counted(job: Job, found: Masks) -> Masks:
    limits = isolated.Limits.default(_SECONDS)
    with processes.temporary_folder() as folder:
        try:
            done = isolated.call_within(limits, prepare, replace(job, folder=str(folder)))
            counts = [
                _by_side(callgrind.run(done.recorded, seed))
                for seed in range(found.seeds)
                if done.recorded is not None
            ]
        except LlgbenchError as error:  # the others go on
            return replace(found, unavailable={job.name: " ".join(str(error).split())})
    return replace(
        found,
        verified=done.verified,
        differences=tuple(line for d in done.differences for line in words.difference_lines(d)),
        refused=tuple(
            Refused(job.vocab, job.group(case), case, why) for case, why in done.refused.items()
        ),
        texts=tuple(_texts(job, done.counted, counts)),
    )


def _by_side(dumps: Sequence[callgrind.Dump]) -> dict[str, list[int]]:
    """Return the instructions of each mask, by ``NUMBER SIDE``."""
    found: dict[str, list[int]] = {}
    for dump in dumps:
        found.setdefault(dump.name.removesuffix(" mask"), []).append(dump.instructions)
    return found


def _texts(
    job: Job, counted: Sequence[tuple[str, str]], counts: Sequence[Mapping[str, list[int]]]
) -> Iterator[TextMasks]:
    for at, (case, text) in enumerate(counted):
        base, head = (
            tuple(np.mean([of[f"{at} {side}"] for of in counts], axis=0).astype(int).tolist())
            for side in SIDES
        )
        yield TextMasks(job.vocab, job.group(case), case, text, base, head)


def _joined(found: Masks, part: Masks) -> Masks:
    return replace(
        found,
        verified=found.verified + part.verified,
        texts=found.texts + part.texts,
        differences=found.differences + part.differences,
        refused=found.refused + part.refused,
        unavailable=found.unavailable | part.unavailable,
    )
