"""The states in which the fallback is measured, by the clock and in instructions alike."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Literal

from llgbench._native import ffi
from llgbench.engines.engine import Engine, Matcher, TokenArray
from llgbench.errors import CompareError, UnavailableError
from llgbench.fallback.pending import Pending, Reading
from llgbench.inputs import case_file
from llgbench.inputs.case import Case
from llgbench.inputs.grammar import with_options
from llgbench.inputs.variant import REFERENCE_FALLBACK, get
from llgbench.llama import bridge
from llgbench.measure.replay import with_end
from llgbench.measure.runner import Workbench

Strategy = Literal["shadow", "replay"]

THRESHOLD = 64
REPLAY_ONLY = 2**64 - 1
# How the other reading is had many bytes after a boundary: kept as a level beyond 64, or never.
STRATEGIES: dict[Strategy, int] = {"shadow": THRESHOLD, "replay": REPLAY_ONLY}

LENGTHS = (16, 64, 65, 256, 1024, 4096, 16384)
# Replay only is quadratic in n, and is not measured beyond this.
LONGEST_REPLAY = 4096

# Where llguidance may force bytes it tokenizes the whole forced run at every step, with the
# fallback or without, and that is O(n). Checkpoints are measured where nothing is forced.
CHECKPOINT_VOCAB = "llama-spm"


def points(lengths: Sequence[int]) -> list[tuple[int, Strategy]]:
    """Return the lengths and strategies that are measured, in order."""
    return [
        (n, strategy)
        for n in lengths
        for strategy in STRATEGIES
        if strategy == "shadow" or n <= LONGEST_REPLAY
    ]


def checkpoint(
    n: int, strategy: Strategy, engine: Engine, bench: Workbench
) -> tuple[Matcher, TokenArray]:
    """Return a fresh matcher of ``checkpoint@n`` and the trace at whose last byte it falls back.

    The text is ``a b{n} d``: the long match dies at its last byte.

    Raises:
        UnavailableError: the engine has no fallback, or no such parameter.
    """
    subject, trace = checkpoint_trace(n, engine, bench)
    variant = get("greedy_lexeme_fallback")
    tokenizer = bench.tokenizer(engine, variant)
    matcher = tokenizer.matcher(subject.lark(bridge.options(engine, variant)))
    set_threshold(matcher, STRATEGIES[strategy])
    return matcher, trace


def checkpoint_trace(n: int, engine: Engine, bench: Workbench) -> tuple[Case, TokenArray]:
    """Return ``checkpoint@n`` and the trace of :func:`checkpoint`.

    Raises:
        UnavailableError: the engine has no fallback.
    """
    subject = case_file.load(f"checkpoint@{n}")
    (text,) = (t for t in subject.texts if t.name == "short-match")
    tokenizer = bench.tokenizer(engine, get("greedy_lexeme_fallback"))
    return subject, with_end(bench.vocab.trace(text.data), tokenizer)


def matchers_of(
    state: Pending, engine: Engine, bench: Workbench, stack: ExitStack
) -> dict[Reading, Matcher]:
    """Return a matcher by reading, each after the text, its lexer's states built.

    Nothing is forced, so that every mask is a walk.

    Raises:
        UnavailableError: the engine has no fallback.
        CompareError: a grammar refuses the text.
    """
    tokenizer = bench.tokenizer(engine, REFERENCE_FALLBACK)
    options = bridge.options(engine, REFERENCE_FALLBACK)
    tokens = bench.vocab.trace(state.text).tolist()
    found: dict[Reading, Matcher] = {}
    for reading, grammar in state.grammars.items():
        matcher = tokenizer.matcher(with_options(grammar, options))
        found[reading] = stack.enter_context(matcher)
        if not matcher.consume_all(tokens) or matcher.mask() is None:
            raise CompareError(f"{state.name}, {reading}: the grammar refuses {state.text!r}")
    return found


def set_threshold(matcher: Matcher, n: int) -> None:
    """Set a matcher's hidden parameter, from here on; see engine/README.md.

    Raises:
        UnavailableError: its engine has none.
    """
    address = _needed(matcher.tokenizer.engine, "llgx_matcher_set_fallback_threshold")
    ffi.cast("void(*)(LlgMatcher *, size_t)", address)(matcher.pointer, n)


def dropper(engine: Engine) -> Any:
    """Return the engine's function that drops the mask a matcher keeps, ``void(*)(LlgMatcher *)``.

    Raises:
        UnavailableError: it exports none.
    """
    return ffi.cast("void(*)(LlgMatcher *)", _needed(engine, "llgx_matcher_drop_mask_cache"))


def _needed(engine: Engine, name: str) -> Any:
    address = engine.symbol(name)
    if address is None:
        raise UnavailableError(f"{engine.path} does not export {name}")
    return address
