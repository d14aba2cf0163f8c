"""Runs configurations in worker processes, and outlives whatever a worker does not.

The supervisor itself loads neither a GGUF nor an engine. A worker that is killed, by a library that
aborts, by a limit, by the system, is a configuration that is not available, with the worker's last
words; everything else goes on in a new worker.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Protocol

import numpy as np

from llgbench import processes
from llgbench.inputs import case, gguf_faults
from llgbench.inputs.case import Case
from llgbench.inputs.catalogue import vocab_path
from llgbench.inputs.configuration import Configuration
from llgbench.isolated import Limits
from llgbench.measure import messages
from llgbench.measure.group import case_facts
from llgbench.measure.messages import (
    Answer,
    Doing,
    Finished,
    Group,
    GroupEnd,
    Header,
    Judged,
    Kept,
    Measured,
    NotAvailable,
    Setup,
    Stage,
    VocabRefused,
)
from llgbench.measure.replay import Rounds, Samples, Unit
from llgbench.measure.runner import Tally
from llgbench.records import record
from llgbench.records.entry import Entry

# How often a worker that says nothing is looked at.
_LOOK_S = 0.2

# A worker that closes its answers is dying; it is given this long to say why.
_LAST_WORDS_S = 10.0

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
                subject = (cases or {}).get(name) or case.load(name)
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
        self._worker: _Worker | None = None
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
            except _Lost as lost:
                silent += lost.doing in (Doing.STARTING, Doing.IDLE)
                if silent > 1:
                    self._refused = lost.reason
                yield from self._blame(lost, kept, subject)

    def _in_worker(self, subject: Case, kept: _Kept, rounds: Rounds) -> Iterator[Entry]:
        worker = self._worker = self._worker or _Worker(self._vocab, self._limits)
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

    def _blame(self, lost: _Lost, kept: _Kept, subject: Case) -> Iterator[Entry]:
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


class _Lost(Exception):
    """A worker has ended without having finished."""

    def __init__(self, doing: Doing, configuration: Configuration | None, reason: str) -> None:
        super().__init__(reason)
        self.doing, self.configuration, self.reason = doing, configuration, reason


class _Worker:
    """One worker process."""

    def __init__(self, vocab: str, limits: Limits) -> None:
        self._vocab, self._limits = vocab, limits
        self._folder = processes.temporary_folder()
        path = self._folder.__enter__() / "stage"
        self._stage = Stage.create(path)
        self._child = processes.Child(
            [*processes.python("llgbench.measure.worker"), str(os.getpid())],
            env={k: v for k, v in os.environ.items() if not k.endswith("_BACKTRACE")},
            stdin=subprocess.PIPE,
        )
        self._buffer = bytearray()
        self._late = False
        self._send(Setup(vocab, str(path), limits.memory_mib))

    def ask(self, task: Group) -> None:
        """Hand over a group."""
        self._send(task)

    def answers(self, asked: Sequence[Configuration], subject: Case) -> Iterator[Answer]:
        """Yield the answers to a group up to its end.

        Raises:
            _Lost: the worker ends before that, or is ended by a limit.
        """
        while True:
            answer = self._next()
            if answer is None:
                raise self._lost(asked, subject)
            yield answer
            if isinstance(answer, GroupEnd | VocabRefused):
                return

    def close(self) -> None:
        """End the process."""
        stdout = self._child.process.stdout
        self._child.close()
        if stdout is not None:
            stdout.close()
        self._stage.close()
        self._folder.__exit__(None, None, None)

    def _send(self, message: Setup | Group) -> None:
        pipe = self._child.process.stdin
        try:
            assert pipe is not None
            pipe.write(messages.encode(message))
            pipe.flush()
        except OSError:
            pass  # it has ended; the answers say so

    def _next(self) -> Answer | None:
        """Return the next answer; None where there will be none."""
        head = self._take(messages.LENGTH.size)
        if head is None:
            return None
        data = self._take(*messages.LENGTH.unpack(head))
        return None if data is None else messages.decode_answer(data)

    def _take(self, n: int) -> bytes | None:
        """Return ``n`` bytes of the answers; None where they end, or a step takes too long."""
        pipe = self._child.process.stdout
        assert pipe is not None
        since, count = time.monotonic(), self._stage.get()[0]
        while len(self._buffer) < n:
            readable, _, _ = select.select([pipe], [], [], _LOOK_S)
            if readable:
                chunk = os.read(pipe.fileno(), 1 << 20)
                if not chunk:
                    return None
                self._buffer += chunk
            now, current = time.monotonic(), self._stage.get()[0]
            if current != count:
                since, count = now, current
            elif now - since > self._limits.seconds:
                self._child.kill()
                self._late = True
                return None
        data = bytes(self._buffer[:n])
        del self._buffer[:n]
        return data

    def _lost(self, asked: Sequence[Configuration], subject: Case) -> _Lost:
        _, doing, at, text = self._stage.get()
        status = self._child.end(wait_s=0.0 if self._late else _LAST_WORDS_S)
        configuration = asked[at] if doing in _OF_ONE and at < len(asked) else None
        name = subject.texts[text].name if text < len(subject.texts) else ""
        what = _WHAT[doing].format(name)
        if self._late:
            words = f"no result within {self._limits.seconds:g} s (--time-limit)"
        else:
            ended = processes.Ended(status, b"", self._child.stderr)
            words = ended.words
            if _out_of_memory(self._child.stderr):
                words += f"; the limit is {self._limits.memory_mib} MiB (--memory-limit)"
        if doing in (Doing.OPENING, Doing.TEXTS):
            known = gguf_faults.diagnose(vocab_path(self._vocab))
            words = known or words
        return _Lost(doing, configuration, f"{what}: {words}")


# What is done for one configuration.
_OF_ONE = (Doing.TOKENIZER, Doing.JUDGING, Doing.REPLAYING)

# What is put before a worker's last words.
_WHAT = {
    Doing.STARTING: "the worker process",
    Doing.OPENING: "llama.cpp",
    Doing.TEXTS: "llama.cpp",
    Doing.TOKENIZER: "while the tokenizer was built",
    Doing.JUDGING: "while {!r} was judged",
    Doing.REPLAYING: "while {!r} was replayed",
    Doing.IDLE: "the worker process",
}


def _out_of_memory(stderr: str) -> bool:
    return any(word in stderr for word in ("memory allocation of", "bad_alloc", "MemoryError"))


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
