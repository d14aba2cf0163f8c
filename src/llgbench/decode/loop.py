"""The decode loop: what a grammar costs inside llama.cpp's generation of tokens.

The loop itself is native (csrc/decode.c). A step decodes, computes the mask, applies it, samples
and accepts, each with its clock. Along a trace the trace's token is committed whatever was
sampled, so that constrained and unconstrained runs do the same work on the same tokens; in free
mode what was sampled is committed, and the text is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import numpy as np
import numpy.typing as npt

from llgbench._native import ffi, lib
from llgbench.engines.engine import Engine, TokenArray, Tokenizer
from llgbench.errors import (
    GrammarError,
    InputError,
    ModelError,
    RecordError,
    UnavailableError,
)
from llgbench.inputs.case import Case, Text
from llgbench.inputs.configuration import Configuration
from llgbench.inputs.variant import Variant
from llgbench.llama import bridge
from llgbench.llama.model import Context
from llgbench.llama.sampler import Chain, GrammarSampler, Selection, decoder
from llgbench.llama.vocab import Vocab
from llgbench.measure import checks
from llgbench.measure.replay import with_end
from llgbench.measure.runner import Ready, Workbench, judge, prepare, traces_of
from llgbench.measure.trace import trace_of
from llgbench.records import lines
from llgbench.records.entry import Entry
from llgbench.records.lines import Count
from llgbench.records.packed import Arrays

# Where a step's time goes; what is left of the wall time is the loop's own bookkeeping.
PARTS = (
    "decode", "candidates", "mask", "wait", "apply", "sample", "check", "accept", "forced",
)  # fmt: skip
# What a grammar adds to a step. With a mask on another thread only the wait for it is seen.
GRAMMAR_PARTS = ("mask", "wait", "apply", "check", "accept", "forced")

STEP = np.dtype(
    [(f"{name}_ns", np.uint64) for name in ("wall", *PARTS)]
    + [
        (name, np.uint32)
        for name in (
            "n_batch", "n_committed", "n_forced", "n_constrained", "n_missed", "n_refused",
        )
    ]
)  # fmt: skip
assert STEP.itemsize == ffi.sizeof("lb_decode_step")
assert [name for name, _ in ffi.typeof("lb_decode_step").fields] == list(STEP.names or ())

Steps = npt.NDArray[np.void]

UNCONSTRAINED = "unconstrained"
MAX_SEQUENCES = 32


@dataclass(frozen=True)
class Mode:
    """How mask, sample and decode follow each other.

    Attributes:
        name: as it is asked for.
        order: LB_MASK_FIRST and its fellows in csrc/llgbench.h.
        options: LB_FORCED, LB_OVERLAP.
        summary: one line for help and reports.
    """

    name: str
    order: int
    options: int
    summary: str


MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("mask-first", lib.LB_MASK_FIRST, 0, "compute the mask, apply it, sample"),
        Mode(
            "sample-first", lib.LB_SAMPLE_FIRST, 0,
            "sample, look the token up in the mask, apply it and sample again on a miss: "
            "llama.cpp's default",
        ),
        Mode(
            "validate-first", lib.LB_VALIDATE_FIRST, 0,
            "sample, validate the token, compute a mask only on a miss",
        ),
        Mode(
            "forced", lib.LB_MASK_FIRST, lib.LB_FORCED,
            "mask-first, and forced tokens are committed unsampled and decoded in one batch",
        ),
        Mode(
            "overlap", lib.LB_MASK_FIRST, lib.LB_OVERLAP,
            "mask-first, the mask computed on another thread while the model decodes",
        ),
    )
}  # fmt: skip

_SUMMED = ("wall", *PARTS, "n_committed", "n_forced", "n_missed")

SAMPLING_FIRST = ("sample-first", "validate-first")


@dataclass(frozen=True)
class Plan:
    """How to run.

    Attributes:
        rounds: times each text is decoded, each with a freshly compiled grammar.
        sequences: decoded at once, all along the same text.
        selection: the chain that samples.
        free: commit what was sampled.
        agree: make the trace's token the model's choice, as a model that knows the format would.
        max_tokens: where free mode stops.
        seed: of the chain's draws.
    """

    rounds: int = 3
    sequences: int = 1
    selection: Selection = "greedy"
    free: bool = False
    agree: bool = False
    max_tokens: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what the loop cannot do."""
        if not 1 <= self.sequences <= MAX_SEQUENCES:
            raise InputError(f"sequences go from 1 to {MAX_SEQUENCES}, not {self.sequences}")
        if self.free and self.agree:
            raise InputError("--agree needs a trace to agree with, which --free has not")


@dataclass(frozen=True)
class Run:
    """One pass of the loop.

    Attributes:
        steps: shape (steps,), dtype STEP.
        committed: the tokens of each sequence.
        wall_ns: of the whole loop.
        compile_ns: of the grammar of each sequence; empty where unconstrained.
        drops: how many sequences lost their grammar.
        errors: tokens that llguidance could not consume.
        error: llguidance's first message; empty where there was none.
    """

    steps: Steps
    committed: list[TokenArray]
    wall_ns: int
    compile_ns: list[int] = field(default_factory=list)
    drops: int = 0
    errors: int = 0
    error: str = ""

    @property
    def sound(self) -> Steps:
        """The steps in which every grammar stood: nothing is timed in a spent state."""
        return self.steps[self._constrained] if self.compile_ns else self.steps

    @property
    def lost_at(self) -> int | None:
        """The first step without a grammar, where llguidance failed; else None."""
        if not (self.drops or self.errors):
            return None
        lost = np.flatnonzero(~self._constrained)
        return int(lost[0]) if len(lost) else len(self.steps)

    @property
    def _constrained(self) -> npt.NDArray[np.bool_]:
        # A step that committed forced tokens had a grammar when it began, even if not at its end.
        sampled = self.steps["n_committed"] - self.steps["n_forced"]
        had = (self.steps["n_constrained"] == sampled) | (self.steps["n_forced"] > 0)
        return np.asarray(had)


def run(
    context: Context,
    tokenizer: Tokenizer | None,
    grammar: str,
    trace: TokenArray | None,
    plan: Plan,
    mode: Mode = MODES["mask-first"],
    seed: int | None = None,
) -> Run:
    """Run the loop once over the context's sequences.

    Args:
        context: with room for the tokens and for ``plan.sequences``.
        tokenizer: the variant's; None: unconstrained.
        grammar: Lark with the variant's options; unused where unconstrained.
        trace: shape (n,), uint32, committed whatever is sampled; None: what is sampled, up to
            an end token or ``plan.max_tokens``.
        plan: sequences, selection, agree, max_tokens.
        mode: how mask and sample follow each other.
        seed: of the first sequence's chain, each further one has the next; default: the plan's.

    Raises:
        GrammarError: the grammar does not compile.
        InputError: the context is too short.
        ModelError: llama.cpp does not decode.
    """
    n = plan.max_tokens if trace is None else len(trace)
    context.require(n, "what is to be sampled" if trace is None else "the trace")
    first = plan.seed if seed is None else seed
    with ExitStack() as stack:
        sequences = ffi.new("lb_sequence[]", plan.sequences)
        committed = np.zeros((plan.sequences, n), np.int32)
        pending = np.zeros((plan.sequences, n + 1), np.int32)
        pending[:, 0] = context.model.first_token()
        samplers, kept = [], []
        wanted = None if trace is None else trace.astype(np.int32)
        for i in range(plan.sequences):
            s = sequences[i]
            s.chain = stack.enter_context(Chain(plan.selection, first + i)).pointer
            if tokenizer is not None:
                sampler = stack.enter_context(GrammarSampler(tokenizer, grammar))
                samplers.append(sampler)
                s.grammar = sampler.pointer
            views = [ffi.from_buffer("int32_t[]", a[i]) for a in (committed, pending)]
            if wanted is not None:
                views.append(ffi.from_buffer("int32_t[]", wanted))
                s.trace = views[-1]
            s.committed, s.pending, s.n, s.n_pending = views[0], views[1], n, 1
            kept.append(views)
        loop = ffi.new("lb_decoding *")
        loop.llama, loop.context, loop.vocab = decoder(), context.handle, context.model.vocab
        loop.engine = ffi.NULL if tokenizer is None else tokenizer.engine.api
        loop.n_vocab, loop.batch_room = context.model.n_tokens, context.batch_room
        loop.sequences, loop.n_sequences = sequences, plan.sequences
        loop.mode = mode.order
        agree = lib.LB_AGREE if plan.agree else 0
        loop.options = (mode.options if tokenizer is not None else 0) | agree
        steps, result = np.zeros(n + 1, STEP), ffi.new("lb_decode_result *")
        into = ffi.from_buffer("lb_decode_step[]", steps, require_writable=True)
        lib.lb_decode(loop, into, result)
        if result.outcome == lib.LB_DECODE_MEMORY:
            raise UnavailableError("no memory, or no thread, for the decode loop")
        if result.outcome == lib.LB_DECODE_FAILED:
            raise ModelError(
                f"{context.model.path.name}: llama_decode returns {result.detail} at step "
                f"{result.n_steps}"
            )
        return Run(
            steps[: result.n_steps].copy(),
            [
                committed[i, : sequences[i].n_committed].astype(np.uint32)
                for i in range(plan.sequences)
            ],
            int(result.wall_ns),
            [s.compile_ns for s in samplers],
            sum(s.drops for s in samplers),
            sum(s.errors for s in samplers),
            next((s.error for s in samplers if s.error), ""),
        )


def check(
    engine: Engine, vocab: Vocab, case: Case, variant: Variant, tokens: TokenArray, eos: int
) -> str:
    """Say what the grammar makes of sampled tokens: ``complete``, ``unfinished``, or where wrong.

    The engine judges the real bytes one by one, apart from any vocabulary.
    """
    ended = len(tokens) > 0 and int(tokens[-1]) == eos
    data = vocab.spell(tokens[:-1] if ended else tokens)
    outcome = checks.outcome(engine, case, Text("sampled", data), variant)
    if outcome.accepted:
        return "complete"
    if outcome.reject_at == len(data) and not ended:
        return "unfinished"
    return f"wrong at byte {outcome.reject_at} of {data[:60].decode(errors='replace')!r}"


@dataclass
class _Side:
    """One configuration and mode while it is measured; unconstrained where nothing is ready."""

    ready: Ready | None
    mode: Mode
    verdict: Mapping[str, Any]
    runs: list[Run] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)


def measure(
    configurations: Sequence[Configuration],
    cases: Mapping[str, Case],
    bench: Workbench,
    context: Context,
    plan: Plan,
    modes: Sequence[Mode],
    doing: Callable[[str], None] = lambda _: None,
) -> Iterator[Entry]:
    """Measure configurations of one vocab beside an unconstrained run; yield an entry for each.

    Within a round the sides take turns over the same tokens, and every other round in the
    opposite order, so that what slows the machine for a while slows them alike.

    Args:
        configurations: of the bench's vocab, in order of their cases.
        cases: by name.
        bench: the vocab with its tokenizers.
        context: of a model with that vocab.
        plan: rounds, sequences and the rest.
        modes: each configuration is measured in each.
        doing: called with a line before each case.

    Raises:
        InputError: the context is too short for a text.
        ModelError: the model's vocabulary is not the bench's.
    """
    context.model.require_vocab(bench.vocab)
    require_room(cases.values(), bench.vocab, context, plan)
    for name, case in cases.items():
        group = [c for c in configurations if c.case == name]
        if group:
            doing(f"{name} on {bench.vocab.name}")
            yield from _measure_case(group, case, bench, context, plan, modes)


def require_room(cases: Iterable[Case], vocab: Vocab, context: Context, plan: Plan) -> None:
    """Refuse a context that is too short, before anything is measured."""
    if plan.free:
        context.require(plan.max_tokens, "what is to be sampled")
        return
    for case in cases:
        for text in decodable(case):
            try:
                n = len(trace_of(text, vocab))
            except UnavailableError:
                break  # the case's entries say so
            context.require(n + 1, f"text {text.name!r} of {case.name}")


def _measure_case(
    group: Sequence[Configuration], case: Case, bench: Workbench, context: Context, plan: Plan,
    modes: Sequence[Mode],
) -> Iterator[Entry]:  # fmt: skip
    texts = decodable(case)
    try:
        if not texts:
            raise UnavailableError("no text of it is accepted, so there is none to decode")
        traces = [trace_of(text, bench.vocab) for text in texts]
    except UnavailableError as error:
        yield from (Entry(c, unavailable=str(error)) for c in group)
        return
    sides = [_Side(None, modes[0], {})]
    for c in group:
        try:
            ready = prepare(c, case, bench)
            verdict = judge(ready, case, traces_of(case, bench.vocab), bench).to_json()
        except UnavailableError as error:
            yield Entry(c, unavailable=str(error))
        except GrammarError as error:
            yield Entry(c, unavailable=f"does not compile: {' '.join(str(error).split())}")
        else:
            sides += [_Side(ready, mode, verdict) for mode in modes]
    if len(sides) == 1:
        return
    tokenizer = next(side.ready for side in sides if side.ready).tokenizer
    ended = [with_end(trace, tokenizer) for trace in traces]
    for number in range(plan.rounds):
        for trace in ended[:1] if plan.free else ended:
            for side in sides if number % 2 == 0 else reversed(sides):
                _run_side(side, case, bench, context, None if plan.free else trace, plan, number)
    for side in sides:
        yield _entry(side, case, group[0].vocab, bench, context, plan, texts, ended)


def _run_side(
    side: _Side, case: Case, bench: Workbench, context: Context, trace: TokenArray | None,
    plan: Plan, number: int,
) -> None:  # fmt: skip
    ready = side.ready
    tokenizer, grammar = (ready.tokenizer, ready.grammar) if ready else (None, "")
    seed = plan.seed + number * plan.sequences
    done = run(context, tokenizer, grammar, trace, plan, side.mode, seed)
    side.runs.append(done)
    if ready is not None and trace is None:
        side.checked += [
            check(ready.engine, bench.vocab, case, ready.variant, tokens, bench.vocab.eos)
            for tokens in done.committed
        ]


def decodable(case: Case) -> list[Text]:
    """Return the texts to decode: those that stock accepts, or the fallback where stock does not.

    A text of which nothing is recorded is taken, too.

    A text that every lexer rejects has no place in a decode: no sampler would have written it.
    """
    texts = [t for t in case.texts if t.stock is None or t.stock.accepted]
    return texts or [t for t in case.texts if t.fallback is not None and t.fallback.accepted]


def _entry(
    side: _Side, case: Case, vocab_name: str, bench: Workbench, context: Context, plan: Plan,
    texts: Sequence[Text], traces: Sequence[TokenArray],
) -> Entry:  # fmt: skip
    sound = [done.sound for done in side.runs]
    samples: dict[str, Arrays] = {
        name: [steps[f"{name}_ns"].copy() for steps in sound] for name in ("wall", *PARTS)
    }
    for name in ("n_batch", "n_committed", "n_forced", "n_missed", "n_refused"):
        samples[name] = [steps[name].astype(np.uint64) for steps in sound]
    samples["compile"] = [np.array(done.compile_ns, np.uint64) for done in side.runs]
    lost = [done.lost_at for done in side.runs if done.lost_at is not None]
    facts: dict[str, Any] = {
        "kind": "decode",
        "mode": side.mode.name if side.ready else UNCONSTRAINED,
        "plan": asdict(plan),
        "model": context.model.facts(),
        "threads": context.threads,
        "context": context.length,
        "case_digest": case.digest,
        "vocab_sha256": bench.vocab.sha256,
        "vocab_tokens": bench.vocab.n_tokens,
        "texts": [
            {"name": text.name, "bytes": len(text.data), "tokens": len(trace)}
            for text, trace in zip(texts, traces, strict=True)
        ],
        "runs": len(side.runs),
        "drops": sum(done.drops for done in side.runs),
        "errors": sum(done.errors for done in side.runs),
        "error": next((done.error for done in side.runs if done.error), ""),
        "lost_at": lost[0] if lost else None,
        "checked": side.checked,
    }
    if side.ready is None:
        case_name = case.name
        return Entry(
            Configuration(case_name, vocab_name, UNCONSTRAINED), samples=samples, facts=facts
        )
    ready = side.ready
    facts["greedy"] = not ready.tokenizer.forces
    facts["options"] = bridge.options(ready.engine, ready.variant)
    engine = {"release": ready.engine.release, "sha256": ready.engine.sha256}
    return Entry(ready.configuration, engine, side.verdict, samples, facts)


class _PlanFacts(TypedDict):
    sequences: Annotated[int, msgspec.Meta(ge=1, le=MAX_SEQUENCES)]
    free: bool


class _DeviceFacts(TypedDict):
    kind: str
    name: NotRequired[str]


class _ModelFacts(TypedDict):
    label: str
    synthetic: bool
    description: str
    parameters: Count
    device: _DeviceFacts


class _Facts(TypedDict):
    """What readers of a decode record rely on; see :func:`_entry`."""

    kind: Literal["decode"]
    mode: str
    plan: _PlanFacts
    model: _ModelFacts
    threads: Count
    texts: list[dict[str, Any]]
    runs: Count
    drops: Count
    lost_at: Count | None
    checked: list[str]


def require(entry: Entry, where: str) -> None:
    """Refuse an entry that :func:`summarize` and :func:`verdict` cannot read.

    Args:
        entry: as read from a record.
        where: the record; begins the message.

    Raises:
        RecordError: it is damaged, or not of a decode record.
    """
    if entry.unavailable is not None:
        return
    where = f"{where}: {entry.configuration}"
    lines.require(entry.facts, _Facts, where)
    if entry.verdict and not {"label", "reason"} <= entry.verdict.keys():
        raise RecordError(f"{where} is damaged: the verdict is incomplete")
    steps = [[len(array) for array in entry.samples.get(name, ())] for name in _SUMMED]
    if any(lengths != steps[0] for lengths in steps):
        raise RecordError(f"{where} is damaged: its samples are not of the same steps")


@dataclass(frozen=True)
class Summary:
    """A decode entry in figures; times in nanoseconds.

    Attributes:
        steps: measured; forced tokens take none of their own.
        tokens: committed in them.
        per_second: tokens committed a second.
        share: of a step's time that is the grammar's, 0 to 1.
        overhead: the loop's own bookkeeping, 0 to 1.
        parts: mean time of a step by part, ``rest`` for the bookkeeping; ``mask`` is left out
            where it ran on another thread, and stands in ``hidden_mask``.
        wall: mean time of a step.
        hidden_mask: mean time of a mask on another thread.
        forced: tokens committed without a sample.
        missed: share of first samples that the grammar refused; None where none came first.
    """

    steps: int
    tokens: int
    per_second: float
    share: float
    overhead: float
    parts: dict[str, float]
    wall: float
    hidden_mask: float
    forced: int
    missed: float | None


def _median_runs(entry: Entry) -> list[int]:
    """Return for each text the run whose time a step is the median of its rounds.

    A whole run is taken, so that its tail stays in; a step is never the best of several.
    """
    walls = entry.samples["wall"]
    n_texts = 1 if entry.facts["plan"]["free"] else len(entry.facts["texts"])
    chosen = []
    for text in range(n_texts):
        runs = [i for i in range(text, len(walls), n_texts) if len(walls[i])]
        runs.sort(key=lambda i: float(walls[i].mean()))
        chosen += runs[(len(runs) - 1) // 2 : (len(runs) - 1) // 2 + 1]
    return chosen


def summarize(entry: Entry) -> Summary | None:
    """Return an entry's figures; None where nothing was measured."""
    if entry.unavailable is not None:
        return None
    chosen = _median_runs(entry)
    total = {
        name: float(sum(int(arrays[i].sum()) for i in chosen))
        for name, arrays in entry.samples.items()
        if name in _SUMMED
    }
    steps = sum(len(entry.samples["wall"][i]) for i in chosen)
    if steps == 0 or total["wall"] == 0:
        return None
    mode = entry.facts["mode"]
    seen = {name: total[name] for name in PARTS}
    hidden = seen["mask"] if mode == "overlap" else 0.0
    if mode == "overlap":
        seen["mask"] = 0.0
    rest = total["wall"] - sum(seen.values())
    sampled = total["n_committed"] - total["n_forced"]
    grammar = 0.0 if mode == UNCONSTRAINED else sum(seen[name] for name in GRAMMAR_PARTS)
    return Summary(
        steps=steps,
        tokens=int(total["n_committed"]),
        per_second=total["n_committed"] / total["wall"] * 1e9,
        share=grammar / total["wall"],
        overhead=rest / total["wall"],
        parts={**{name: t / steps for name, t in seen.items()}, "rest": rest / steps},
        wall=total["wall"] / steps,
        hidden_mask=hidden / steps,
        forced=int(total["n_forced"]),
        missed=total["n_missed"] / sampled if sampled and mode in SAMPLING_FIRST else None,
    )


def verdict(entry: Entry) -> str:
    """Return what must stand beside an entry's times, in one line."""
    if entry.unavailable is not None:
        return f"not available: {entry.unavailable}"
    if not entry.verdict:
        return ""
    facts = entry.facts
    found = []
    if facts["lost_at"] is not None:
        did = f"drops the grammar in {facts['drops']}" if facts["drops"] else "llguidance fails"
        of = facts["runs"] * facts["plan"]["sequences"]
        found.append(f"{did} of {of} sequences, at step {facts['lost_at']}")
    if facts["plan"]["free"]:
        kinds = [c.partition(" ")[0] for c in facts["checked"]]
        found += [
            f"{kinds.count(k)} {k}" for k in ("complete", "unfinished", "wrong") if k in kinds
        ]
    label, reason = entry.verdict["label"], entry.verdict["reason"]
    found.append(f"{label}: {reason}" if reason else label)
    return "; ".join(found)
