"""Batches into records: what ``llgbench batch`` and the ASV suite have in common.

They are records like any other, in results/records/batch, with an entry for each configuration,
number of sequences, number of threads and method; ``facts["kind"]`` is ``batch``. Each
configuration and number of threads is measured in a worker of its own: rayon, which
``llg_par_compute_mask`` uses, has one number of threads per process.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from llgbench import isolated, paths, processes
from llgbench.decode import batch, loop
from llgbench.decode.batch import Batch, Plan
from llgbench.decode.batch_summary import FOLDER, METHODS, OF_DRAFTS, SAMPLES, Method
from llgbench.decode.measurement import decodable
from llgbench.decode.plan import MAX_SEQUENCES
from llgbench.decode.plan import Plan as DecodePlan
from llgbench.errors import GrammarError, InputError, ProcessError, UnavailableError
from llgbench.inputs import case_file
from llgbench.inputs.configuration import Configuration
from llgbench.isolated import Limits
from llgbench.llama import device
from llgbench.llama.model import Context, Model
from llgbench.llama.synthetic import synthesize
from llgbench.measure import provenance
from llgbench.measure.replay import with_end
from llgbench.measure.runner import Workbench, judge, prepare, traces_of
from llgbench.measure.trace import trace_of
from llgbench.records import record as records
from llgbench.records.entry import Entry, from_plain, to_plain
from llgbench.records.record import Record

# Of one worker; a batch of 256 long texts takes minutes to begin.
SECONDS = 3600.0
# Tokens per sequence that are decoded to learn how long a decode takes.
_DECODED = 24
_COUNTS = ("n_clones", "n_drafted", "n_valid", "n_back", "n_rollbacks")


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        cases: by name.
        vocabs: by name, or GGUF files.
        variants: by name.
        engine: for every variant; ``default``: each variant's own.
        sequences: each number is measured by itself.
        threads: likewise.
        steps: counted, of each.
        draft: tokens of a draft; 0: none.
        seed: of what is refused in a draft.
        cold: clone a matcher that has seen no text.
        model: a GGUF file whose decode the masks must hide behind; None: none.
        shape: of a synthetic model in its place; None: none.
        device: where that model's layers are.
        limits: of a worker.
    """

    cases: tuple[str, ...] = ("json-tool-call",)
    vocabs: tuple[str, ...] = ("llama-bpe",)
    variants: tuple[str, ...] = ("greedy_tokenize",)
    engine: str = "default"
    sequences: tuple[int, ...] = (1, 8, 64, 256)
    threads: tuple[int, ...] = (1, 2)
    steps: int = 1000
    draft: int = 0
    seed: int = 0
    cold: bool = False
    model: Path | None = None
    shape: str | None = None
    device: str = device.CPU
    limits: Limits = field(default_factory=lambda: Limits.default(SECONDS))

    def __post_init__(self) -> None:
        """Refuse what cannot be done, before anything is."""
        for threads in self.threads:
            for sequences in self.sequences:
                self.plan(sequences, threads)

    def plan(self, sequences: int, threads: int) -> Plan:
        """Return the plan of one batch."""
        return Plan(sequences, threads, self.steps, self.draft, self.seed)

    @property
    def methods(self) -> tuple[Method, ...]:
        """Who computes the masks; of drafts, llguidance's function computes none."""
        return METHODS[:1] if self.draft else METHODS


@dataclass(frozen=True)
class DecodeTime:
    """How long ``llama_decode`` takes for one token of each sequence.

    Attributes:
        sequences: in the batch.
        p50_ns: median over the steps.
        model: as Model.label has it.
        device: the device's name.
        threads: that decode.
        unavailable: why it was not measured; None where it was.
    """

    sequences: int
    p50_ns: float = 0.0
    model: str = ""
    device: str = ""
    threads: int = 0
    unavailable: str | None = None


def decode_times(request: Request) -> list[DecodeTime]:
    """Decode with as many sequences as the masks are computed for; runs in a worker.

    Raises:
        LlgbenchError: the model cannot be loaded, or the device is not to be had.
    """
    [vocab] = request.vocabs
    found = []
    with Workbench(vocab) as bench:
        path = request.model or synthesize(request.shape or "nano", bench.vocab)
        with Model(path, request.device, None if request.model else request.shape) as model:
            trace = np.full(_DECODED, model.first_token(), np.uint32)
            for sequences in request.sequences:
                about = DecodeTime(sequences, model=model.label, device=model.device_label)
                if sequences > MAX_SEQUENCES:
                    why = f"llama.cpp decodes {MAX_SEQUENCES} sequences at once, at most"
                    found.append(replace(about, unavailable=why))
                    continue
                try:
                    with Context(model, 2 * _DECODED, sequences) as context:
                        done = loop.run(context, None, "", trace, DecodePlan(sequences=sequences))
                        found.append(
                            replace(
                                about,
                                # The first decode also allocates.
                                p50_ns=float(np.median(done.steps["decode_ns"][2:])),
                                threads=context.threads,
                            )
                        )
                except UnavailableError as error:
                    found.append(replace(about, unavailable=str(error)))
    return found


def measure(request: Request) -> Iterator[Entry]:
    """Measure the batches of one case, vocab, variant and number of threads; yield entries.

    Raises:
        LlgbenchError: as open_vocab and prepare; nothing is measured then.
    """
    [name], [vocab], [variant] = request.cases, request.vocabs, request.variants
    [threads] = request.threads
    # Read by rayon at its first call in this process.
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    configuration = Configuration(name, vocab, variant, request.engine)
    subject = case_file.load(name)
    with Workbench(vocab) as bench:
        ready = prepare(configuration, subject, bench)
        verdict = judge(ready, subject, traces_of(subject, bench.vocab), bench).to_json()
        texts = decodable(subject)
        traces = {t.name: with_end(trace_of(t, bench.vocab), ready.tokenizer) for t in texts}
        with Batch(ready.tokenizer, ready.grammar, traces, cold=request.cold) as of_case:
            for sequences in request.sequences:
                plan = request.plan(sequences, threads)
                for method in request.methods:
                    facts = {
                        **_facts(request, plan, method),
                        "case_digest": subject.digest,
                        "vocab_sha256": bench.vocab.sha256,
                        "vocab_tokens": bench.vocab.n_tokens,
                        "texts": [{"name": t.name, "tokens": len(t.tokens)} for t in of_case.texts],
                        "left_out": of_case.left_out,
                    }
                    try:
                        run = of_case.run(plan, method)
                    except (UnavailableError, GrammarError) as error:
                        yield Entry(configuration, facts=facts, unavailable=str(error))
                        continue
                    engine = {"release": ready.engine.release, "sha256": ready.engine.sha256}
                    yield _entry(configuration, engine, verdict, run, facts)


def _facts(request: Request, plan: Plan, method: Method) -> dict[str, Any]:
    return {"kind": "batch", "method": method, "cold": request.cold, **asdict(plan)}


def _entry(
    configuration: Configuration, engine: dict[str, str], verdict: dict[str, Any], run: batch.Run,
    facts: dict[str, Any],
) -> Entry:  # fmt: skip
    steps = run.steps
    counts = {name: int(steps[name].sum()) for name in _COUNTS}
    facts = {**facts, **counts, "masks_compared": run.masks, "fault": run.fault}
    if run.fault:
        # No time beside a mask that is not as it should be.
        return Entry(configuration, engine, {"label": "wrong", "reason": run.fault}, {}, facts)
    names = (*SAMPLES, *(OF_DRAFTS if facts["draft"] else ()))
    samples = {name: [steps[f"{name}_ns"].copy()] for name in names}
    begun = steps["n_clones"] > 0
    samples["clone"] = [steps["clone_ns"][begun] // steps["n_clones"][begun]]
    return Entry(configuration, engine, verdict, samples, facts)


def serve(request: Request, into: Path) -> None:
    """Measure and append a line for each entry to a file; runs in a worker.

    Raises:
        LlgbenchError: as measure.
    """
    with into.open("a", encoding="utf-8") as file:
        for entry in measure(request):
            file.write(json.dumps(to_plain(entry)) + "\n")
            file.flush()


def _in_worker(request: Request) -> list[Entry]:
    """Let a worker measure; what it does not come to is not available, and says why."""
    with processes.temporary_folder() as folder:
        into, why = folder / "entries", ""
        into.touch()
        try:
            isolated.call_within(request.limits, serve, request, into)
        except (ProcessError, UnavailableError, GrammarError) as error:
            why = " ".join(str(error).split())
        written = into.read_text(encoding="utf-8").split("\n")[:-1]
    found = [from_plain(json.loads(line), "a worker") for line in written]
    [name], [vocab], [variant] = request.cases, request.vocabs, request.variants
    configuration = Configuration(name, vocab, variant, request.engine)
    wanted = [(n, method) for n in request.sequences for method in request.methods]
    for sequences, method in wanted[len(found) :]:
        facts = _facts(request, request.plan(sequences, request.threads[0]), method)
        found.append(Entry(configuration, facts=facts, unavailable=why))
    return found


def record(
    request: Request,
    results: Path | None = None,
    doing: Callable[[str], None] = lambda _: None,
    done: Callable[[], None] = lambda: None,
) -> Record:
    """Measure a request into a record under results/records/batch.

    Where nothing could be measured the record does not stay; its entries say why.

    Raises:
        LlgbenchError: a model was asked for and cannot be loaded, or its device is not to be had.
        RecordError: the folder cannot be written.
        InputError: interrupted; the message says where what was measured is kept.
    """
    root = paths.root()
    about: dict[str, Any] = {**provenance.collect(root), "batch": asdict(request)}
    about["batch"]["model"] = str(request.model) if request.model else None
    mark = records.fingerprint(about, time.time_ns())
    folder = (results or root / "results") / "records" / FOLDER
    with records.Writer(folder, mark, about) as writer:
        try:
            for vocab in request.vocabs:
                decoded: Mapping[int, DecodeTime] = {}
                if request.model or request.shape:
                    doing(f"decoding with {vocab}")
                    times = isolated.call_within(
                        request.limits, decode_times, replace(request, vocabs=(vocab,))
                    )
                    decoded = {one.sequences: one for one in times}
                for piece in _pieces(replace(request, vocabs=(vocab,))):
                    doing(f"{piece.cases[0]} on {vocab}, {piece.threads[0]} threads")
                    for entry in _in_worker(piece):
                        writer.add(_beside(entry, decoded))
                    done()
        except KeyboardInterrupt:
            if writer.empty:
                raise
            raise InputError(f"interrupted; what was measured is kept in {writer.path}") from None
        writer.end()
        found = records.read(writer.path)
        if all(entry.unavailable is not None for entry in found.entries):
            writer.discard()
    return found


def _pieces(request: Request) -> Iterator[Request]:
    for name in request.cases:
        for variant in request.variants:
            for threads in request.threads:
                yield replace(request, cases=(name,), variants=(variant,), threads=(threads,))


def _beside(entry: Entry, decoded: Mapping[int, DecodeTime]) -> Entry:
    decode_time = decoded.get(entry.facts["sequences"])
    if decode_time is None:
        return entry
    return replace(entry, facts={**entry.facts, "decode": asdict(decode_time)})
