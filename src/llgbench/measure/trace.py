"""Traces: the texts of a case as tokens of one vocabulary, the same for every variant."""

from __future__ import annotations

import numpy as np

from llgbench.engines.engine import TokenArray
from llgbench.errors import UnavailableError
from llgbench.inputs.case import Text
from llgbench.llama.vocab import Vocab


def special_tokens(vocab: Vocab) -> dict[str, int]:
    """Return the special tokens of a vocab that a grammar can name, by name.

    They are the tokens without bytes of their own, which the bridge marks.
    """
    table = vocab.table("token_to_piece")
    found: dict[str, int] = {}
    for token in np.flatnonzero(table.marked).tolist():
        found.setdefault(table.tokens[token][1:].decode(errors="replace"), token)
    return found


def trace_of(text: Text, vocab: Vocab) -> TokenArray:
    """Return the tokens of a text, without an end token; shape (n,), uint32.

    A special token that the text names is that token; what lies between is tokenized by itself,
    so that its tokens' real bytes are the text's.

    Raises:
        UnavailableError: the vocab cannot spell the text, or has no such special token.
    """
    if text.special_tokens == ():
        return vocab.trace(text.data)
    known = special_tokens(vocab)
    names = known if text.special_tokens is None else text.special_tokens
    for name in names:
        if name not in known:
            raise UnavailableError(f"vocab {vocab.name} has no special token {name!r}")
    parts = [
        np.array([known[piece.decode()]], np.uint32) if special else vocab.trace(piece)
        for piece, special in text.split(names)
    ]
    return np.concatenate([*parts, np.empty(0, np.uint32)]).astype(np.uint32)
