"""The variants: which bytes, which tokenizer, which lexer.

Each of the four adds to the one before; ``sentinel`` stands beside them. See docs/glossary.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llgbench.errors import UnknownNameError

# The names under which an engine may offer the greedy lexeme fallback; the second is the one of
# upstream's open pull request.
FALLBACK_OPTIONS = ("greedy_lexeme_fallback", "lexer_backtracking")

Bytes = Literal["detokenize", "token_to_piece"]
Tokenize = Literal["always", "if_exact", "sentinel", "never"]


@dataclass(frozen=True)
class Variant:
    """One way to put llama.cpp and llguidance together.

    Attributes:
        name: as it appears in every list.
        token_bytes: which llama.cpp function gives a token's bytes.
        tokenize: when llguidance gets a tokenize_fn: ``always``; ``if_exact``, where the tokenizer
            returns the bytes of the probes; ``sentinel``, made exact by a sentinel where it is
            not by itself; ``never``.
        fallback: whether the greedy lexeme fallback is on, which takes an engine that has it.
        summary: one line for tables and help.
    """

    name: str
    token_bytes: Bytes
    tokenize: Tokenize
    fallback: bool
    summary: str


_ALL = (
    Variant("baseline", "detokenize", "always", False, "llama.cpp's bridge as it is"),
    Variant("token_to_piece", "token_to_piece", "always", False, "exact token bytes"),
    Variant(
        "greedy_tokenize", "token_to_piece", "if_exact", False,
        "exact bytes, and no tokenize_fn where it is not byte-exact",
    ),
    Variant(
        "greedy_lexeme_fallback", "token_to_piece", "if_exact", True,
        "as greedy_tokenize, on a lexer that falls back to the last accepting position",
    ),
    Variant(
        "sentinel", "token_to_piece", "sentinel", False,
        "exact bytes, and a tokenize_fn made byte-exact by a sentinel",
    ),
)  # fmt: skip

VARIANTS: dict[str, Variant] = {variant.name: variant for variant in _ALL}

# The four that every table compares; `sentinel` is asked for by name.
DEFAULT_VARIANTS = ("baseline", "token_to_piece", "greedy_tokenize", "greedy_lexeme_fallback")

# What the others are judged against: exact bytes and a mask that is always a walk over the trie,
# so it is neither wrong nor narrowed by forcing.
REFERENCE = Variant("reference", "token_to_piece", "never", False, "exact bytes, nothing forced")
REFERENCE_FALLBACK = Variant(
    "reference", "token_to_piece", "never", True, "exact bytes, nothing forced, fallback on"
)


def get(name: str) -> Variant:
    """Return a variant by name.

    Raises:
        UnknownNameError: there is none of that name.
    """
    try:
        return VARIANTS[name]
    except KeyError:
        raise UnknownNameError("variant", name, VARIANTS) from None


def reference_of(variant: Variant) -> Variant:
    """Return the variant whose masks are the truth for this one's lexer."""
    return REFERENCE_FALLBACK if variant.fallback else REFERENCE
