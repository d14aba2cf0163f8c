"""Batches: many sequences with a matcher each, their masks computed by a pool of threads.

The steps are native (csrc/batch.c). Every sequence is a clone of one compiled matcher and goes
along a text from a place of its own; where the text ends, a fresh clone begins the next one.
Every mask is held word by word against the one that a single matcher computed on one thread.

llguidance's C API has two kinds of clones. ``llg_clone_matcher`` copies the lexer's states, so
clones share nothing and may run on any thread. ``llg_clone_constraint``, whose results
``llg_par_compute_mask`` takes, shares them behind a lock that is held for a whole mask: clones of
one constraint take turns, however many threads there are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from llgbench._native import ffi, lib
from llgbench.decode.batch_summary import Method
from llgbench.engines.engine import Matcher, TokenArray, Tokenizer
from llgbench.engines.handle import Handle
from llgbench.errors import GrammarError, InputError, UnavailableError

STEP = np.dtype(
    [
        (f"{name}_ns", np.uint64)
        for name in (
            "step", "slowest", "work", "validate", "ahead", "rollback", "consume", "clone",
        )
    ]
    + [
        (name, np.uint32)
        for name in ("n_clones", "n_drafted", "n_valid", "n_back", "n_rollbacks", "n_masks")
    ]
)  # fmt: skip
assert STEP.itemsize == ffi.sizeof("lb_batch_step")
assert [name for name, _ in ffi.typeof("lb_batch_step").fields] == list(STEP.names or ())

MAX_SEQUENCES = 4096
MAX_THREADS = 512
MAX_DRAFT = 64
# The first steps, in which threads start, are run and not counted.
WARM_UP = 16

_OUTCOMES = {
    lib.LB_REJECTED: "the grammar rejects it",
    lib.LB_MASK_ERROR: "a mask fails",
    lib.LB_CONSUME_ERROR: "llguidance fails on one of its tokens",
}


@dataclass(frozen=True)
class Plan:
    """What a batch does.

    Attributes:
        sequences: at once.
        threads: that compute masks; the calling thread waits, as a server's decodes.
        steps: counted.
        draft: tokens of a draft per sequence and step; 0: none.
        seed: of what is refused in a draft.
    """

    sequences: int
    threads: int
    steps: int = 1000
    draft: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be done."""
        for name, most in (
            ("sequences", MAX_SEQUENCES), ("threads", MAX_THREADS), ("steps", 1_000_000),
        ):  # fmt: skip
            if not 1 <= getattr(self, name) <= most:
                raise InputError(f"{name} go from 1 to {most}, not {getattr(self, name)}")
        if not 0 <= self.draft <= MAX_DRAFT:
            raise InputError(f"a draft has 1 to {MAX_DRAFT} tokens, not {self.draft}")


@dataclass(frozen=True)
class Run:
    """What came of a batch.

    Attributes:
        steps: shape (counted steps,), dtype STEP; none where a mask was not as it should be.
        fault: where a mask or a draft was not as one matcher has it alone; empty: nowhere.
        masks: compared, the warm-up's included.
        wall_ns: of all, cloning and the walk to the first places included.
    """

    steps: npt.NDArray[np.void]
    fault: str
    masks: int
    wall_ns: int


@dataclass(frozen=True)
class Text:
    """A text as one matcher went along it alone.

    Attributes:
        name: of the text.
        tokens: shape (n,), uint32: those at whose places there is a mask.
        masks: shape (n, words), uint32.
        refused: shape (n,), a token that the grammar refuses there; UINT32_MAX: none was found.
    """

    name: str
    tokens: TokenArray
    masks: npt.NDArray[np.uint32]
    refused: npt.NDArray[np.uint32]


class Batch:
    """One compiled grammar with the texts that its sequences go along; a context manager.

    Attributes:
        texts: those that the grammar takes, with the masks of one matcher alone.
        left_out: why a text is not among them, by name.
    """

    def __init__(
        self, tokenizer: Tokenizer, grammar: str, traces: Mapping[str, TokenArray],
        *, cold: bool = False,
    ) -> None:  # fmt: skip
        """Compile the grammar and go along each text alone.

        Args:
            tokenizer: must outlive the batch.
            grammar: Lark with the variant's options.
            traces: by the texts' names; shape (n,), uint32, the end token included.
            cold: clone a matcher that has seen no text; else it has seen them all, so that the
                lexer's states are there, as they are on a server that has served for a while.

        Raises:
            GrammarError: the grammar does not compile.
            UnavailableError: it takes none of the texts.
        """
        self._tokenizer, self._grammar, self._cold = tokenizer, grammar, cold
        self.left_out: dict[str, str] = {}
        self.texts: list[Text] = []
        self._elder = tokenizer.matcher(grammar)
        try:
            with self._elder.clone() as alone:
                for name, trace in traces.items():
                    self._go_alone(alone if cold else self._elder, name, trace)
            if not self.texts:
                reasons = [f"{name}: {why}" for name, why in self.left_out.items()]
                raise UnavailableError(f"no text to go along: {(reasons or ['there is none'])[0]}")
        except BaseException:
            self._elder.close()
            raise

    def _go_alone(self, matcher: Matcher, name: str, trace: TokenArray) -> None:
        words = self._tokenizer.mask_words
        trace = np.ascontiguousarray(trace, np.uint32)
        text = Text(
            name, trace, np.zeros((len(trace), words), np.uint32), np.zeros(len(trace), np.uint32)
        )
        if not matcher.reset():
            self.left_out[name] = "llguidance failed on the text before"
            return
        given = ffi.new("lb_batch_text *")
        _fill(given, text)
        outcome = lib.lb_batch_alone(self._tokenizer.engine.api, matcher.pointer, words, given)
        n = int(given.n)
        if outcome in _OUTCOMES or n == 0:
            self.left_out[name] = f"{_OUTCOMES.get(outcome, 'it has no mask')} (token {n})"
            return
        self.texts.append(Text(name, trace[:n], text.masks[:n], text.refused[:n]))

    def run(self, plan: Plan, method: Method = "pool") -> Run:
        """Run the steps; a draft's masks are compared in a pass of their own, which is not timed.

        Raises:
            InputError: drafts and ``llg_par_compute_mask``, which has none.
            UnavailableError: the engine lacks the method, or there is no memory or thread.
        """
        if plan.draft and method != "pool":
            raise InputError(f"{method} computes no drafts")
        if plan.draft:
            checked = self._run(plan, method, check_ahead=True)
            if checked.fault:
                return checked
        return self._run(plan, method, check_ahead=False)

    def _run(self, plan: Plan, method: Method, *, check_ahead: bool) -> Run:
        texts = ffi.new("lb_batch_text[]", len(self.texts))
        for at, text in enumerate(self.texts):
            _fill(texts + at, text)
        # For `cold` the elder must not have seen a text, and for the others it is at its start.
        if not self._cold and not self._elder.reset():
            raise UnavailableError("llguidance cannot reset the matcher that is to be cloned")
        batch = ffi.new("lb_batch *")
        batch.engine, batch.elder = self._tokenizer.engine.api, self._elder.pointer
        batch.words = self._tokenizer.mask_words
        batch.texts, batch.n_texts = texts, len(self.texts)
        batch.n_sequences, batch.n_threads = plan.sequences, plan.threads
        batch.n_steps = plan.steps + WARM_UP
        batch.draft, batch.seed, batch.check_ahead = plan.draft, plan.seed, check_ahead
        steps, result = np.zeros(batch.n_steps, STEP), ffi.new("lb_batch_result *")
        into = ffi.from_buffer("lb_batch_step[]", steps, require_writable=True)
        with ExitStack() as stack:
            if method != "pool":
                constraint = stack.enter_context(_Constraint(self._tokenizer, self._grammar))
                for text in () if self._cold else self.texts:
                    constraint.warm(text.tokens)
                batch.parallel, batch.constraint = constraint.api, constraint.pointer
            lib.lb_batch_run(batch, into, result)
        if result.outcome == lib.LB_BATCH_MEMORY:
            raise UnavailableError(
                f"no memory, or no thread, for {plan.sequences} sequences on {plan.threads} threads"
            )
        fault = ""
        if result.outcome != lib.LB_BATCH_DONE:
            what = (
                "is not as one matcher has it alone" if result.outcome == lib.LB_BATCH_DIFFERENT
                else "fails, which it does not for one matcher alone"
            )  # fmt: skip
            fault = (
                f"{'a draft or mask' if plan.draft else 'the mask'} of sequence {result.sequence} "
                f"at token {result.position} of {self.texts[result.text].name} {what}"
            )
        done = steps[: result.n_steps]
        masks = int(done["n_masks"].sum())
        return Run(done[WARM_UP:] if not fault else done[:0], fault, masks, int(result.wall_ns))

    def close(self) -> None:
        """Free the matcher."""
        self._elder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _fill(into: Any, text: Text) -> None:
    into.tokens = ffi.from_buffer("uint32_t[]", text.tokens)
    into.masks = ffi.from_buffer("uint32_t[]", text.masks)
    into.refused = ffi.from_buffer("uint32_t[]", text.refused)
    into.n = len(text.tokens)


class _Constraint(Handle):
    """A grammar compiled for ``llg_par_compute_mask``.

    Attributes:
        api: ``lb_parallel *``.
    """

    def __init__(self, tokenizer: Tokenizer, grammar: str) -> None:
        """Compile the grammar.

        Raises:
            UnavailableError: the engine has no parallel masks.
            GrammarError: it does not compile.
        """
        self._tokenizer = tokenizer  # kept alive
        self.api = ffi.new("lb_parallel *")
        error = ffi.new("char[]", 1024)
        path = tokenizer.engine.path
        if lib.lb_parallel_open(os.fsencode(path), self.api, error, len(error)) != 0:
            raise UnavailableError(f"{path}: {ffi.string(error).decode(errors='replace')}")
        init = ffi.new("lb_constraint_init *")
        tokenizer.engine.api.constraint_init_set_defaults(init, tokenizer.pointer)
        init.log_buffer_level = init.log_stderr_level = 0
        data = ffi.new("char[]", grammar.encode())
        self._pointer = self.api.new_constraint(init, b"lark", data)
        message = self.api.get_error(self._pointer)
        if message != ffi.NULL:
            why = ffi.string(message).decode(errors="replace")
            self.close()
            raise GrammarError(why)

    def _free(self, pointer: Any) -> None:
        self.api.free_constraint(pointer)

    def warm(self, tokens: TokenArray) -> None:
        """Let a clone go along a text; what it learns of the lexer is every clone's."""
        clone = self.api.clone_constraint(self.pointer)
        mask, committed = ffi.new("lb_mask_result *"), ffi.new("lb_commit_result *")
        try:
            for token in tokens.tolist():
                if self.api.compute_mask(clone, mask) != 0:
                    break
                if self.api.commit_token(clone, token, committed) != 0:
                    break
        finally:
            self.api.free_constraint(clone)
