"""The replay: a matcher driven along a trace, every step timed in native code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from llgbench._native import ffi, lib
from llgbench.engines.engine import INVALID_TOKEN, Matcher, TokenArray, Tokenizer
from llgbench.records import times

STEP = np.dtype(
    [
        ("op_ns", np.uint64),
        ("consume_ns", np.uint64),
        ("mask_hash", np.uint64),
        ("allowed", np.uint32),
        ("flags", np.uint32),
    ]
)
assert STEP.itemsize == ffi.sizeof("lb_step")

Times = npt.NDArray[np.uint64]


class Op(IntEnum):
    """What is timed at each step besides consume_token; see LB_OP_* in csrc/llgbench.h."""

    MASK = lib.LB_OP_MASK
    CACHED = lib.LB_OP_CACHED
    VALIDATE = lib.LB_OP_VALIDATE
    FORCED = lib.LB_OP_FORCED
    ROLLBACK = lib.LB_OP_ROLLBACK


class End(IntEnum):
    """How a replay ended; see LB_END and its fellows in csrc/llgbench.h."""

    WHOLE = lib.LB_END
    REJECTED = lib.LB_REJECTED
    MASK_ERROR = lib.LB_MASK_ERROR
    CONSUME_ERROR = lib.LB_CONSUME_ERROR
    STOPPED = lib.LB_STOPPED
    RESET_ERROR = lib.LB_RESET_ERROR


@dataclass(frozen=True)
class Replay:
    """One pass of a matcher along a trace.

    Attributes:
        steps: shape (steps begun,), dtype STEP.
        end: how it ended; the last step is incomplete unless it is WHOLE or STOPPED.
        inside_ns: inside llguidance: what is timed, and what is only needed to go on.
        wall_ns: of the whole native loop, bookkeeping included.
    """

    steps: npt.NDArray[np.void]
    end: End
    inside_ns: int
    wall_ns: int

    @property
    def op_ns(self) -> Times:
        """Times of the operation, of the steps in which it ran; shape (≤ steps,), uint64."""
        return np.asarray(
            self.steps["op_ns"][self.steps["flags"] & lib.LB_STEP_TIMED != 0], np.uint64
        )

    @property
    def consume_ns(self) -> Times:
        """Times of consume_token, of the steps that consumed; shape (≤ steps,), uint64."""
        return np.asarray(
            self.steps["consume_ns"][self.steps["flags"] & lib.LB_STEP_CONSUMED != 0], np.uint64
        )

    @property
    def tbm_ns(self) -> Times:
        """Mask + consume of the steps that did both: the field's time between masks."""
        both = lib.LB_STEP_TIMED | lib.LB_STEP_CONSUMED
        done = self.steps[self.steps["flags"] & both == both]
        return np.asarray(times.tbm(done["op_ns"], done["consume_ns"]), np.uint64)

    @property
    def consumed(self) -> int:
        """How many tokens were consumed."""
        return int(np.count_nonzero(self.steps["flags"] & lib.LB_STEP_CONSUMED))

    @property
    def forced(self) -> int:
        """In how many steps the mask left one token; known after a replay with facts."""
        return int(np.count_nonzero(self.steps["allowed"] == 1))


def replay(
    matcher: Matcher,
    tokens: TokenArray,
    op: Op = Op.MASK,
    *,
    facts: bool = False,
    reset: bool = False,
) -> Replay:
    """Drive a matcher along a trace from its present state, or from the start.

    It stops at a token that cannot be consumed without handing it over, so the matcher can be
    reset afterwards; after MASK_ERROR and CONSUME_ERROR it cannot.

    Args:
        matcher: in the state where the trace begins.
        tokens: shape (n,), uint32.
        op: what to time beside consume_token.
        facts: also count the allowed tokens and hash the mask, outside the clocks.
        reset: reset the matcher first; from its error state that ends in RESET_ERROR, no steps.
    """
    tokens = np.ascontiguousarray(tokens, np.uint32)
    steps = np.zeros(len(tokens), STEP)
    result = ffi.new("lb_replay_result *")
    lib.lb_replay(
        matcher.tokenizer.engine.api,
        matcher.pointer,
        matcher.tokenizer.mask_words,
        ffi.from_buffer("uint32_t[]", tokens),
        len(tokens),
        int(op),
        (lib.LB_FACTS if facts else 0) | (lib.LB_RESET if reset else 0),
        ffi.from_buffer("lb_step[]", steps, require_writable=True),
        result,
    )
    return Replay(
        steps[: result.n_steps],
        End(result.outcome),
        int(result.inside_ns),
        int(result.wall_ns),
    )


def with_end(tokens: TokenArray, tokenizer: Tokenizer) -> TokenArray:
    """Return the trace with the vocabulary's end token, where it has one, as its last step."""
    if tokenizer.eos == INVALID_TOKEN:
        return tokens
    return np.append(tokens, np.uint32(tokenizer.eos))


@dataclass(frozen=True)
class EmptyStep:
    """What a step costs before llguidance does any work.

    Attributes:
        read_ns: what the two clocked intervals of an empty step read together, median.
        wall_ns: what an empty step of the loop costs in all, clocks included.
    """

    read_ns: float
    wall_ns: float


@lru_cache(maxsize=1)
def empty_step(n: int = 20_000, rounds: int = 5) -> EmptyStep:
    """Measure the replay loop on an engine whose every call does nothing; best of the rounds."""
    engine = ffi.new("lb_engine *")
    lib.lb_engine_empty(engine)
    tokens, steps = np.zeros(n, np.uint32), np.zeros(n, STEP)
    result = ffi.new("lb_replay_result *")
    best: list[EmptyStep] = []
    for _ in range(rounds):
        lib.lb_replay(
            engine, ffi.NULL, 1, ffi.from_buffer("uint32_t[]", tokens), n, lib.LB_OP_MASK, 0,
            ffi.from_buffer("lb_step[]", steps, require_writable=True), result,
        )  # fmt: skip
        read = float(np.median(steps["op_ns"] + steps["consume_ns"]))
        best.append(EmptyStep(read, result.wall_ns / n))
    return min(best, key=lambda step: step.wall_ns)
