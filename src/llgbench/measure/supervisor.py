"""Runs configurations in worker processes, and outlives whatever a worker does not.

The supervisor itself loads neither a GGUF nor an engine. A worker that is killed, by a library that
aborts, by a limit, by the system, is a configuration that is not available, with the worker's last
words; everything else goes on in a new worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Protocol

import numpy as np

from llgbench.inputs import case_file
from llgbench.inputs.case import Case
from llgbench.inputs.configuration import Configuration
from llgbench.isolated import Limits
from llgbench.measure import messages
from llgbench.measure.group import case_facts
from llgbench.measure.messages import (
    Doing,
    Finished,
    Group,
    GroupEnd,
    Header,
    Judged,
    Kept,
    Measured,
    NotAvailable,
    VocabRefused,
)
from llgbench.measure.rounds import Rounds, Samples, Unit
from llgbench.measure.runner import Tally
from llgbench.measure.worker_process import WorkerLost, WorkerProcess
from llgbench.records import record
from llgbench.records.entry import Entry

# For one step: opening the vocabulary, building a tokenizer, judging a text, or replaying it once
# under one configuration.
STEP_S = 300.0


class Keeping(Protocol):
    """Keeps what a group has found so far; see journal.Journal."""

    def begin(self, header: Header) -> list[Kept]:
        """Begin a group; return what is kept of it."""

    def add(self, message: Kept) -> None:
        """Keep a message."""

    def clear(self) -> None:
        """Forget the group: it is finished."""


def run(
    configurations: Sequence[Configuration],
    rounds: Rounds,
    tally: Tally,
    cases: Mapping[str, Case] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    *,
    limits: Limits | None = None,
    journal: Keeping | None = None,
    inputs: Mapping[Configuration, str] | None = None,
) -> Iterator[Entry]:
    """Judge and measure configurations; yield each as it is done.

    What cannot run is yielded too, with its reason. Configurations of one case and vocab are
    measured together, interleaved; see replay.units.

    Args:
        configurations: in any order; they run vocab by vocab.
        rounds: how often each is replayed.
        tally: told where the time goes.
        cases: cases that are not under grammars/, by name.
        progress: called with a line before each group.
        limits: of a worker, the seconds of one step; default: STEP_S.
        journal: keeps what a group has found before it is finished.
        inputs: a hash of everything that a configuration's numbers depend on, for the journal.

    Raises:
        UnknownNameError, CaseError: a case cannot be read.
        RecordError: the journal cannot be written.
    """
    ordered = sorted(configurations, key=lambda c: c.vocab)  # stable: the rest keeps its order
    for vocab, of_vocab in groupby(ordered, key=lambda c: c.vocab):
        with _OneVocab(vocab, limits or Limits.default(STEP_S), tally) as one:
            for name, listed in groupby(of_vocab, key=lambda c: c.case):
                subject = (cases or {}).get(name) or case_file.load(name)
                progress(f"{name} on {vocab}")
                kept = _Kept(list(listed), subject, rounds, journal, inputs or {}, progress)
                yield from one.group(subject, kept, rounds)
                kept.clear()


class _Kept:
    """What is known of a group, from a journal and from workers."""

    def __init__(
        self, listed: list[Configuration], subject: Case, rounds: Rounds, journal: Keeping | None,
        inputs: Mapping[Configuration, str], progress: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._progress = progress
        self._name = f"{subject.name} on {listed[0].vocab}"
        self.left = listed
        self.judged: list[Judged] = []
        self.measured: dict[Unit, Measured] = {}
        self._journal = journal
        if journal is not None:
            group = record.fingerprint(subject.name, listed[0].vocab, asdict(rounds))
            header = Header(group, [(c, inputs.get(c, "")) for c in listed])
            for message in journal.begin(header):
                self._take(message)

    def add(self, message: Kept) -> None:
        self._take(message)
        if isinstance(message, Measured):
            self._progress(f"{self._name}, round {message.unit.round + 1}")
        if self._journal is not None:
            self._journal.add(message)

    def _take(self, message: Kept) -> None:
        if isinstance(message, Judged):
            self.judged.append(message)
        else:
            self.measured[message.unit] = message

    def samples(self, configuration: Configuration) -> Samples:
        """Return a configuration's samples, its units in the order in which they are measured."""
        found = Samples()
        for _, measured in sorted(self.measured.items()):
            for of, columns in measured.parts:
                if of == configuration:
                    found.add(messages.unpack(columns))
        return found

    def units(self) -> list[Unit]:
        """Return the units that every configuration that is left has been measured in."""
        return [
            unit
            for unit, measured in self.measured.items()
            if {c for c, _ in measured.parts} >= set(self.left)
        ]

    def clear(self) -> None:
        if self._journal is not None:
            self._journal.clear()


class _OneVocab:
    """The workers of one vocabulary, one after another; a context manager."""

    def __init__(self, vocab: str, limits: Limits, tally: Tally) -> None:
        self._vocab, self._limits, self._tally = vocab, limits, tally
        self._worker: WorkerProcess | None = None
        self._refused: str | None = None  # why nothing can be measured on this vocabulary
        # Tokenizers that killed a worker, by engine and variant; they would kill the next one.
        self._deadly: dict[tuple[str, str], str] = {}

    def group(self, subject: Case, kept: _Kept, rounds: Rounds) -> Iterator[Entry]:
        """Measure a group, in as many workers as it takes."""
        silent = 0
        while kept.left:
            for configuration in list(kept.left):
                deadly = self._deadly.get((configuration.engine, configuration.variant))
                if self._refused is not None or deadly is not None:
                    yield self._drop(kept, configuration, subject, self._refused or deadly or "")
            if not kept.left:
                return
            try:
                yield from self._in_worker(subject, kept, rounds)
                silent = 0
            except WorkerLost as lost:
                silent += lost.doing in (Doing.STARTING, Doing.IDLE)
                if silent > 1:
                    self._refused = lost.reason
                yield from self._blame(lost, kept, subject)

    def _in_worker(self, subject: Case, kept: _Kept, rounds: Rounds) -> Iterator[Entry]:
        worker = self._worker = self._worker or WorkerProcess(self._vocab, self._limits)
        asked = list(kept.left)
        worker.ask(Group(subject, asked, rounds, kept.judged, kept.units()))
        for answer in worker.answers(asked, subject):
            match answer:
                case Judged() | Measured():
                    kept.add(answer)
                case NotAvailable(configuration, reason):
                    yield self._drop(kept, configuration, subject, reason)
                case Finished():
                    kept.left.remove(answer.configuration)
                    yield _entry(answer, kept.samples(answer.configuration))
                case GroupEnd():
                    self._tally.inside_ns += answer.inside_ns
                    self._tally.setup_ns += answer.setup_ns
                case VocabRefused(reason):
                    self._refused = reason
                    self.close()

    def _blame(self, lost: WorkerLost, kept: _Kept, subject: Case) -> Iterator[Entry]:
        """Take out what the worker was doing when it was lost."""
        self.close()
        match lost.doing:
            case Doing.OPENING:
                self._refused = lost.reason
            case Doing.TEXTS:
                for configuration in list(kept.left):
                    yield self._drop(kept, configuration, subject, lost.reason)
            case Doing.TOKENIZER if lost.configuration is not None:
                key = (lost.configuration.engine, lost.configuration.variant)
                self._deadly[key] = lost.reason
            case Doing.JUDGING | Doing.REPLAYING if lost.configuration is not None:
                yield self._drop(kept, lost.configuration, subject, lost.reason)

    def _drop(self, kept: _Kept, configuration: Configuration, subject: Case, why: str) -> Entry:
        kept.left.remove(configuration)
        return Entry(configuration, facts=case_facts(subject), unavailable=why)

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def __enter__(self) -> _OneVocab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _entry(finished: Finished, samples: Samples) -> Entry:
    verdict = finished.verdict
    if samples.fault:  # what the judgement did not see and the replays did
        verdict = {**verdict, "label": "wrong", "reason": f"engine: {samples.fault}"}
    return Entry(
        finished.configuration,
        engine=finished.engine,
        verdict=verdict,
        samples={
            "compile": [np.array(samples.compile_ns, np.uint64)],
            "first_mask": [np.array(samples.first_mask_ns, np.uint64)],
            "cold_mask": samples.cold_mask_ns,
            "cold_consume": samples.cold_consume_ns,
            "warm_mask": samples.warm_mask_ns,
            "warm_consume": samples.warm_consume_ns,
            "cached_mask": samples.cached_mask_ns,
            "sibling_mask": samples.sibling_mask_ns,
            "sibling_consume": samples.sibling_consume_ns,
            "allowed": samples.allowed,
            "mask_hash": samples.mask_hash,
        },
        facts=finished.facts,
    )
