"""The decode loop: what a grammar costs inside llama.cpp's generation of tokens.

The loop itself is native (csrc/decode.c). A step decodes, computes the mask, applies it, samples
and accepts, each with its clock. Along a trace the trace's token is committed whatever was
sampled, so that constrained and unconstrained runs do the same work on the same tokens; in free
mode what was sampled is committed, and the text is checked.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from llgbench._native import ffi, lib
from llgbench.decode.modes import MODES, Mode, Order
from llgbench.decode.plan import PARTS, Plan
from llgbench.engines.engine import Engine, TokenArray, Tokenizer
from llgbench.errors import (
    ModelError,
    UnavailableError,
)
from llgbench.inputs.case import Case, Text
from llgbench.inputs.variant import Variant
from llgbench.llama.model import Context
from llgbench.llama.sampler import Chain, GrammarSampler, decoder
from llgbench.llama.vocab import Vocab
from llgbench.measure import outcomes

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


_ORDERS: dict[Order, int] = {
    "mask": lib.LB_MASK_FIRST, "sample": lib.LB_SAMPLE_FIRST, "validate": lib.LB_VALIDATE_FIRST,
}  # fmt: skip


def _options(mode: Mode) -> int:
    forced: int = lib.LB_FORCED if mode.forced else 0
    return forced | (lib.LB_OVERLAP if mode.overlap else 0)


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
        loop.mode = _ORDERS[mode.first]
        agree = lib.LB_AGREE if plan.agree else 0
        loop.options = (_options(mode) if tokenizer is not None else 0) | agree
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
    outcome = outcomes.outcome(engine, case, Text("sampled", data), variant)
    if outcome.accepted:
        return "complete"
    if outcome.reject_at == len(data) and not ended:
        return "unfinished"
    return f"wrong at byte {outcome.reject_at} of {data[:60].decode(errors='replace')!r}"
