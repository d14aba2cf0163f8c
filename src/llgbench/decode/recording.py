"""Decode runs into records: what ``llgbench decode`` and the ASV suite have in common.

They are records like any other (records.py), in results/records/decode, with an entry for each
configuration, mode and number of sequences; ``facts["kind"]`` is ``decode``. A run is not gone on
with after it was killed: its sides are timed beside each other or not at all. Models, vocabularies
and engines are loaded in workers, which may crash.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from llgbench import isolated, paths, processes
from llgbench.decode import measurement
from llgbench.decode.modes import MODES
from llgbench.decode.plan import Plan
from llgbench.errors import InputError, ProcessError, UnavailableError
from llgbench.inputs import case, case_file, gguf_faults
from llgbench.inputs.catalogue import vocab_path
from llgbench.inputs.configuration import Configuration
from llgbench.inputs.variant import DEFAULT_VARIANTS
from llgbench.isolated import Limits
from llgbench.llama import device
from llgbench.llama.model import Context, Model
from llgbench.llama.synthetic import synthesize
from llgbench.measure import provenance
from llgbench.measure.runner import Workbench
from llgbench.measure.trace import trace_of
from llgbench.records import record as records
from llgbench.records.entry import Entry, from_plain, to_plain
from llgbench.records.record import Record

FOLDER = "decode"
# llama.cpp rounds a context up to this.
_CONTEXT_STEP = 256
# A large model takes hours over many texts; what takes longer hangs.
SECONDS = 6 * 3600.0
_NO_LIMIT = 1 << 40  # MiB


@dataclass(frozen=True)
class Request:
    """What to decode.

    Attributes:
        cases: by name.
        vocabs: by name, or GGUF files; with a model file they must be its own.
        variants: by name.
        engine: for every variant; ``default``: each variant's own.
        modes: by name; see decode.MODES.
        sequences: each number is measured by itself.
        plan: the rest; its ``sequences`` is not read.
        model: a GGUF file; None: a synthetic model of ``shape``.
        shape: see model.SHAPES.
        device: where the layers are, as device.find takes it.
        context: tokens a sequence; 0: as many as the longest text takes.
        threads: that decode; 0: all cores.
        limits: of a worker: the seconds of all cases of one vocab; the memory on the CPU alone.
    """

    cases: tuple[str, ...]
    vocabs: tuple[str, ...]
    variants: tuple[str, ...] = DEFAULT_VARIANTS
    engine: str = "default"
    modes: tuple[str, ...] = ("mask-first",)
    sequences: tuple[int, ...] = (1,)
    plan: Plan = field(default_factory=Plan)
    model: Path | None = None
    shape: str = "nano"
    device: str = device.CPU
    context: int = 0
    threads: int = 0
    limits: Limits = field(default_factory=lambda: Limits.default(SECONDS))

    def configurations(self, vocab: str) -> list[Configuration]:
        """Return the configurations of one vocab."""
        return [Configuration(c, vocab, v, self.engine) for c in self.cases for v in self.variants]

    @property
    def pieces(self) -> list[tuple[int, str]]:
        """What is measured of one vocab, piece by piece: number of sequences and case."""
        return [(n, name) for n in self.sequences for name in self.cases]


def measure(
    request: Request, first: int, last: int, doing: Callable[[str], None] = lambda _: None
) -> Iterator[list[Entry]]:
    """Measure pieces of a request of one vocab; yield each piece's entries.

    What cannot run is yielded with its reason.

    Args:
        request: what; one vocab.
        first: the first of its pieces.
        last: behind the last of them.
        doing: called with a line before each piece.

    Raises:
        ModelError, InputError, UnavailableError: the model, the context or the device cannot
            serve; nothing is measured then.
    """
    [vocab] = request.vocabs
    pieces = request.pieces[first:last]
    device.find(request.device)  # before a model is made for it
    try:
        bench = Workbench(vocab)
    except UnavailableError as error:
        for n, name in pieces:
            some = [c for c in request.configurations(vocab) if c.case == name]
            # Without a vocab it is the same for every number of sequences.
            yield [Entry(c, unavailable=str(error)) for c in some if n == request.sequences[0]]
        return
    cases = {name: case_file.load(name) for name in request.cases}
    shape = None if request.model else request.shape
    doing(f"loading {request.model or f'synthetic {shape}'} with {vocab}")
    with bench:
        path = request.model or synthesize(request.shape, bench.vocab)
        with Model(path, request.device, shape) as model:
            model.require_vocab(bench.vocab)
            length = request.context or _needed(request, cases, bench)
            for sequences, of_number in groupby(pieces, key=lambda piece: piece[0]):
                plan = replace(request.plan, sequences=sequences)
                with Context(model, length, sequences, request.threads) as context:
                    measurement.require_room(cases.values(), bench.vocab, context, plan)
                    for _, name in of_number:
                        yield list(measurement.measure(
                            request.configurations(vocab), {name: cases[name]}, bench, context,
                            plan, [MODES[mode] for mode in request.modes], doing,
                        ))  # fmt: skip


def _needed(request: Request, cases: dict[str, case.Case], bench: Workbench) -> int:
    longest = request.plan.max_tokens
    if not request.plan.free:
        lengths = [0]
        for subject in cases.values():
            try:
                lengths += [len(trace_of(t, bench.vocab)) for t in measurement.decodable(subject)]
            except UnavailableError:
                continue  # said by the entry
        longest = max(lengths) + 1  # the end token
    return -(-(longest + 1) // _CONTEXT_STEP) * _CONTEXT_STEP


def serve(request: Request, first: int, last: int, into: Path) -> None:
    """Measure pieces of a request, and append a line for each to a file; runs in a worker.

    Raises:
        LlgbenchError: as measure.
    """
    with into.open("a", encoding="utf-8") as file:
        for entries in measure(request, first, last):
            file.write(json.dumps([to_plain(entry) for entry in entries]) + "\n")
            file.flush()


def _in_worker(
    request: Request, first: int, last: int, add: Callable[[Entry], None]
) -> tuple[int, str | None]:
    """Let a worker measure pieces; hand over what it has measured, also where it ends early.

    Returns:
        How many pieces were measured, and the last words of a worker that did not survive.

    Raises:
        LlgbenchError: as measure.
    """
    with processes.temporary_folder() as folder:
        into, words = folder / "pieces", None
        into.touch()
        try:
            isolated.call_within(request.limits, serve, request, first, last, into)
        except ProcessError as error:
            known = gguf_faults.diagnose(vocab_path(request.vocabs[0]))
            words = f"llama.cpp: {known}" if known else str(error)
        finally:
            pieces = into.read_text(encoding="utf-8").split("\n")[:-1]
            for piece in pieces:
                for line in json.loads(piece):
                    add(from_plain(line, "a worker"))
    return len(pieces), words


def _measure_apart(request: Request, add: Callable[[Entry], None]) -> None:
    """Measure a request of one vocab in workers; a piece that one does not survive is done apart.

    Raises:
        LlgbenchError: as measure.
    """
    at, end = 0, len(request.pieces)
    while at < end:
        done, words = _in_worker(request, at, end, add)
        at += done
        if words is not None and at < end:
            _survivors(request, at, words, add)
            at += 1


def _survivors(request: Request, at: int, words: str, add: Callable[[Entry], None]) -> None:
    """Find by one round of each variant which of a piece kill a worker; measure the others.

    Together they are measured as ever, beside one unconstrained run and in turn.
    """
    [vocab] = request.vocabs
    _, name = request.pieces[at]
    dead = {}
    for variant in request.variants if len(request.variants) > 1 else ():
        alone = replace(request, variants=(variant,), plan=replace(request.plan, rounds=1))
        _, said = _in_worker(alone, at, at + 1, lambda _: None)
        if said is not None:
            dead[variant] = said
    left = tuple(variant for variant in request.variants if variant not in dead)
    if dead and left:
        _, words_again = _in_worker(replace(request, variants=left), at, at + 1, add)
        left = left if words_again is not None else ()
        words = words_again or words
    for variant in (*left, *dead):
        c = Configuration(name, vocab, variant, request.engine)
        add(Entry(c, unavailable=dead.get(variant, words)))


def record(
    request: Request,
    results: Path | None = None,
    doing: Callable[[str], None] = lambda _: None,
) -> Record:
    """Measure a request into a record under results/records/decode.

    Where nothing could be measured the record does not stay; its entries say why.

    Raises:
        RecordError: the folder cannot be written.
        InputError: interrupted; the message says where what was measured is kept.
    """
    if request.device.lower() != device.CPU:
        # A limit of memory is not for a process that maps a device's.
        request = replace(request, limits=replace(request.limits, memory_mib=_NO_LIMIT))
    root = paths.root()
    where_from: dict[str, Any] = {**provenance.collect(root), "decode": asdict(request)}
    where_from["decode"]["model"] = str(request.model) if request.model else None
    mark = records.fingerprint(where_from, time.time_ns())
    folder = (results or root / "results") / "records" / FOLDER
    with records.Writer(folder, mark, where_from) as writer:
        try:
            for vocab in request.vocabs:
                doing(f"decoding with {vocab}")
                one = replace(request, vocabs=(vocab,))
                _measure_apart(one, writer.add)
        except KeyboardInterrupt:
            if writer.empty:
                raise
            raise InputError(f"interrupted; what was measured is kept in {writer.path}") from None
        writer.end()
        found = records.read(writer.path)
        if all(entry.unavailable is not None for entry in found.entries):
            writer.discard()
    return found
