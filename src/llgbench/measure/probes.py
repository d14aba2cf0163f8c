"""Probes: whether an engine gets the right token bytes and a byte-exact tokenizer."""

from __future__ import annotations

import json
from dataclasses import dataclass

from llgbench.engines.engine import Engine, Tokenizer
from llgbench.errors import UnavailableError
from llgbench.inputs.case import Case
from llgbench.inputs.variant import Variant
from llgbench.llama import bridge
from llgbench.llama.vocab import Vocab
from llgbench.measure.trace import special_tokens

# The probes: a grammar without spaces, one text whose bytes are all forced, and a literal that is
# spelled as a special token is named.
NO_SPACE_GRAMMAR = 'start: /[.a-z]{2,6}/ "!"'
FORCED_GRAMMAR = 'start: "hello world"'
FORCED_TEXT = b"hello world"


@dataclass(frozen=True)
class TokenBytes:
    """How the two ways to ask for a token's bytes differ.

    Attributes:
        tokens: size of the vocabulary.
        differing: tokens whose llama_detokenize bytes are not their llama_token_to_piece bytes.
        lost_space: of these, tokens that begin with a space and no longer do. Of a run of spaces
            llama_detokenize takes one and leaves a space in front: it is shorter, not lost.
        byte_exact: whether llama_tokenize returns the bytes of the probes.
    """

    vocab: str
    kind: str
    tokens: int
    differing: int
    lost_space: int
    byte_exact: bool


def token_bytes(vocab: Vocab) -> TokenBytes:
    """Compare a vocab's two token tables; tokens without bytes of their own do not count."""
    detokenized, pieces = vocab.table("detokenize"), vocab.table("token_to_piece")
    differing = [
        (shown, piece)
        for shown, piece, marked in zip(
            detokenized.tokens, pieces.tokens, pieces.marked.tolist(), strict=True
        )
        if shown != piece and not marked
    ]
    lost = sum(p.startswith(b" ") and not s.startswith(b" ") for s, p in differing)
    return TokenBytes(
        vocab.name, vocab.kind, vocab.n_tokens, len(differing), lost, vocab.is_byte_exact
    )


@dataclass(frozen=True)
class Probes:
    """What the first masks of the probes' grammars allow, for one vocab and variant.

    Attributes:
        spaced: allowed tokens at position 0 of NO_SPACE_GRAMMAR whose real bytes hold a space.
        no_space_allowed: all allowed tokens there.
        forced: ids allowed at position 0 of FORCED_GRAMMAR.
        forced_bytes: their real bytes, decoded with replacement characters.
        forced_right: whether each of these is a prefix of the one text of the grammar.
        greedy: whether llguidance was left without a tokenize_fn.
        literal: the name of a special token, as the literal of a grammar; empty where there is
            none.
        literal_tokens: ids allowed at position 0 of that grammar whose bytes do not begin the
            literal: where llguidance forces it, the tokenizer makes the special token of it.
    """

    vocab: str
    variant: str
    spaced: int
    no_space_allowed: int
    forced: tuple[int, ...]
    forced_bytes: tuple[str, ...]
    forced_right: bool
    greedy: bool
    literal: str = ""
    literal_tokens: tuple[int, ...] = ()

    @property
    def right(self) -> bool:
        """Whether the first two masks allow only what their grammars allow."""
        return self.spaced == 0 and self.forced_right and bool(self.forced)


def probes(vocab: Vocab, variant: Variant, tokenizer: Tokenizer, engine: Engine) -> Probes:
    """Ask the probes' grammars for their first masks."""
    pieces = vocab.table("token_to_piece").tokens
    header = Case("probe", "lark", "", vocab.path, "", ()).lark(bridge.options(engine, variant))
    allowed = _first_mask(tokenizer, header + NO_SPACE_GRAMMAR)
    forced = _first_mask(tokenizer, header + FORCED_GRAMMAR)
    literal = _literal(vocab)
    spelled: list[int] = []
    if literal:
        spelled = _first_mask(
            tokenizer, f"{header}start: {json.dumps(literal, ensure_ascii=False)}"
        )
    return Probes(
        vocab=vocab.name,
        variant=variant.name,
        spaced=sum(b" " in pieces[t] for t in allowed),
        no_space_allowed=len(allowed),
        forced=tuple(forced),
        forced_bytes=tuple(pieces[t].decode(errors="replace") for t in forced),
        forced_right=all(FORCED_TEXT.startswith(pieces[t]) for t in forced),
        greedy=not tokenizer.forces,
        literal=literal,
        literal_tokens=tuple(t for t in spelled if not literal.encode().startswith(pieces[t])),
    )


def _literal(vocab: Vocab) -> str:
    """Return the name of a special token that can be spelled, empty where there is none."""
    for name in special_tokens(vocab):
        try:
            vocab.trace(name.encode())
        except UnavailableError:
            continue
        if name.isprintable():
            return name
    return ""


def _first_mask(tokenizer: Tokenizer, grammar: str) -> list[int]:
    with tokenizer.matcher(grammar) as matcher:
        allowed = matcher.allowed()
        return [] if allowed is None else allowed.tolist()
