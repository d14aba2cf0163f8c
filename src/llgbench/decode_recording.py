"""Decode runs into records: what ``llgbench decode`` and the ASV suite have in common.

They are records like any other (records.py), in results/records/decode, with an entry for each
configuration, mode and number of sequences; ``facts["kind"]`` is ``decode``. A run is not gone on
with after it was killed: its sides are timed beside each other or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from llgbench import case, decode, paths, provenance, records
from llgbench.configuration import Configuration
from llgbench.decode import MODES, Plan
from llgbench.errors import InputError, UnavailableError
from llgbench.model import Context, Device, Model, synthesize
from llgbench.records import Entry, Record
from llgbench.runner import Workbench
from llgbench.trace import trace_of
from llgbench.variant import DEFAULT_VARIANTS

FOLDER = "decode"
# llama.cpp rounds a context up to this.
_CONTEXT_STEP = 256


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
        device: where the layers are.
        context: tokens a sequence; 0: as many as the longest text takes.
        threads: that decode; 0: all cores.
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
    device: Device = "cpu"
    context: int = 0
    threads: int = 0

    def configurations(self, vocab: str) -> list[Configuration]:
        """Return the configurations of one vocab."""
        return [Configuration(c, vocab, v, self.engine) for c in self.cases for v in self.variants]


def measure(request: Request, doing: Callable[[str], None] = lambda _: None) -> Iterator[Entry]:
    """Measure a request vocab by vocab; what cannot run is yielded with its reason.

    Args:
        request: what.
        doing: called with a line before each group.

    Raises:
        ModelError, InputError, UnavailableError: the model, the context or the device cannot
            serve; nothing of that vocab is measured then.
    """
    for vocab in request.vocabs:
        try:
            bench = Workbench(vocab)
        except UnavailableError as error:
            yield from (Entry(c, unavailable=str(error)) for c in request.configurations(vocab))
            continue
        with bench:
            yield from _measure_vocab(request, vocab, bench, doing)


def _measure_vocab(
    request: Request, vocab: str, bench: Workbench, doing: Callable[[str], None]
) -> Iterator[Entry]:
    cases = {name: case.load(name) for name in request.cases}
    shape = None if request.model else request.shape
    doing(f"loading {request.model or f'synthetic {shape}'} with {vocab}")
    path = request.model or synthesize(request.shape, bench.vocab)
    with Model(path, request.device, shape) as model:
        model.require_vocab(bench.vocab)
        length = request.context or _needed(request, cases, bench)
        for sequences in request.sequences:
            plan = replace(request.plan, sequences=sequences)
            with Context(model, length, sequences, request.threads) as context:
                yield from decode.measure(
                    request.configurations(vocab), cases, bench, context, plan,
                    [MODES[name] for name in request.modes], doing,
                )  # fmt: skip


def _needed(request: Request, cases: dict[str, case.Case], bench: Workbench) -> int:
    longest = request.plan.max_tokens
    if not request.plan.free:
        lengths = [0]
        for subject in cases.values():
            try:
                lengths += [len(trace_of(t, bench.vocab)) for t in decode.decodable(subject)]
            except UnavailableError:
                continue  # said by the entry
        longest = max(lengths) + 1  # the end token
    return -(-(longest + 1) // _CONTEXT_STEP) * _CONTEXT_STEP


def record(
    request: Request,
    results: Path | None = None,
    doing: Callable[[str], None] = lambda _: None,
) -> Record:
    """Measure a request into a record under results/records/decode.

    Raises:
        RecordError: the folder cannot be written.
        InputError: interrupted; the message says where what was measured is kept.
    """
    root = paths.root()
    where_from: dict[str, Any] = {**provenance.collect(root), "decode": asdict(request)}
    where_from["decode"]["model"] = str(request.model) if request.model else None
    mark = records.fingerprint(where_from, time.time_ns())
    folder = (results or root / "results") / "records" / FOLDER
    # Nothing is opened before what can be refused at once is refused.
    running = measure(request, doing)
    first = next(running, None)
    with records.Writer(folder, mark, where_from) as writer:
        try:
            if first is not None:
                writer.add(first)
            for entry in running:
                writer.add(entry)
        except KeyboardInterrupt:
            raise InputError(f"interrupted; what was measured is kept in {writer.path}") from None
        writer.end()
    return records.read(writer.path)
