"""What a text comes to by a grammar, byte by byte, and whether that is as its case records."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from llgbench.engines.engine import Engine, byte_tokenizer
from llgbench.inputs.case import Case, Outcome, Text
from llgbench.inputs.variant import Variant
from llgbench.llama import bridge
from llgbench.llama.vocab import Vocab
from llgbench.measure.trace import special_tokens


def recorded(text: Text, variant: Variant) -> Outcome | None:
    """Return what the case records that a variant's lexer does with a text; None: nothing."""
    return text.fallback if variant.fallback else text.stock


def unlike_recorded(text: Text, found: Outcome, variant: Variant) -> str | None:
    """Return how an outcome is not the recorded one, None where it is or nothing is recorded."""
    expected = recorded(text, variant)
    if expected is None or expected.met_by(found):
        return None
    if expected.anywhere:
        return f"accepts the invalid text {text.name!r}"
    did = "accepts" if found.accepted else "rejects"
    at = "" if found.accepted else f" at byte {found.reject_at}"
    return f"{did} {text.name!r}{at}, recorded as {expected}"


def outcome(engine: Engine, case: Case, text: Text, variant: Variant) -> Outcome:
    """Return what the engine's lexer does with a text, byte by byte, apart from any vocabulary.

    Raises:
        GrammarError: the grammar does not compile.
    """
    grammar = case.lark(bridge.options(engine, variant))
    named = {name for t in case.texts for name in t.special_tokens or ()}
    if case.kind == "lark":
        named |= set(_NAMED.findall(case.source))
    return outcome_by(engine, grammar, text, named)


# What a Lark grammar may mean as the name of a special token; one too many does no harm.
_NAMED = re.compile(r"<[^\s<>\[\]]+>")


def outcome_by(engine: Engine, grammar: str, text: Text, known: Iterable[str]) -> Outcome:
    """Return what a text comes to, fed byte by byte; ``known`` are the special tokens' names."""
    names = [n for n in dict.fromkeys(known) if n in grammar or n.encode() in text.data]
    special = names if text.special_tokens is None else text.special_tokens
    names = list(dict.fromkeys([*names, *special]))
    at = 0
    with (
        byte_tokenizer(engine, names) as tokenizer,
        tokenizer.matcher(grammar) as matcher,
    ):
        for piece, is_special in text.split(special):
            symbols = [257 + names.index(piece.decode())] if is_special else piece
            for symbol in symbols:
                if matcher.validate([symbol]) != 1 or not matcher.consume(symbol):
                    return Outcome(at)
                at += len(piece) if is_special else 1
        return Outcome() if matcher.is_accepting() else Outcome(at)


def special_names(vocab: Vocab) -> Collection[str]:
    """Return the names of a vocabulary's special tokens."""
    return special_tokens(vocab).keys()
