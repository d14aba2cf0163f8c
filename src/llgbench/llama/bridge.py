"""The bridge: how llama.cpp's vocabulary becomes llguidance's tokenizer, one way per variant."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from llgbench._native import ffi
from llgbench.engines.engine import Engine, Tokenizer
from llgbench.errors import UnavailableError
from llgbench.inputs.variant import Variant
from llgbench.llama.api import llama
from llgbench.llama.vocab import PROBES, Vocab

_owned: WeakKeyDictionary[Any, tuple[Any, ...]] = WeakKeyDictionary()


def build(engine: Engine, vocab: Vocab, variant: Variant) -> Tokenizer:
    """Build the tokenizer that a variant gives llguidance.

    The vocab must not be closed before the tokenizer and every matcher made from it.

    Raises:
        UnavailableError: the variant needs an ability that the engine lacks.
        EngineError: llguidance refuses the tokenizer.
    """
    if variant.fallback and engine.fallback_option is None:
        raise UnavailableError(
            f"engine {engine.release} at {engine.path} has no greedy lexeme fallback "
            "(it rejects `listed` under every option)"
        )
    table = vocab.table(variant.token_bytes)
    return Tokenizer(engine, table.lens, table.data, vocab.eos, context(vocab, variant))


def options(engine: Engine, variant: Variant) -> dict[str, Any]:
    """Return the grammar options a variant sets, under the name this engine knows."""
    return {engine.fallback_option: True} if variant.fallback and engine.fallback_option else {}


def is_greedy(vocab: Vocab, variant: Variant) -> bool:
    """Whether this variant leaves llguidance without a tokenize_fn on this vocab."""
    return context(vocab, variant) is None


def context(vocab: Vocab, variant: Variant) -> Any:
    """Return what a variant's tokenize_fn gets, ``lb_tokenize_context *``; None where it has none.

    The vocab must not be closed as long as it is used.
    """
    match variant.tokenize:
        case "always":
            return _tokenize_context(vocab, b"")
        case "if_exact":
            return _tokenize_context(vocab, b"") if vocab.is_byte_exact else None
        case "sentinel":
            if vocab.is_byte_exact:
                return _tokenize_context(vocab, b"")
            return _sentinel_context(vocab)
        case "never":
            return None


def _tokenize_context(vocab: Vocab, sentinel: bytes) -> Any:
    context = ffi.new("lb_tokenize_context *")
    context.llama = llama()
    context.vocab = vocab.vocab
    context.parse_special = True
    # The context holds raw pointers: what they point to must live as long as it does.
    _owned[context] = (vocab,)
    if not sentinel:
        return context
    head = ffi.new("int32_t[]", vocab.tokenize(sentinel, parse_special=True).tolist())
    text = ffi.new("char[]", sentinel)
    context.sentinel, context.sentinel_len = text, len(sentinel)
    context.sentinel_tokens, context.n_sentinel_tokens = head, len(head)
    _owned[context] = (vocab, text, head)
    return context


def _sentinel_context(vocab: Vocab) -> Any:
    """Return a context with a sentinel that makes the probes byte-exact, None where none does."""
    sentinel = vocab.sentinel
    if sentinel is None:
        return None
    head = vocab.tokenize(sentinel, parse_special=True)
    for probe in PROBES:
        tokens = vocab.tokenize(sentinel + probe, parse_special=True)
        if not np.array_equal(tokens[: len(head)], head):
            return None
        if vocab.spell(tokens[len(head) :]) != probe:
            return None
    return _tokenize_context(vocab, sentinel)
