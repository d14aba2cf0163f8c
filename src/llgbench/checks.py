"""What is right: the verdict that stands beside every time, and the figures of the first document.

A variant's masks are judged by the real bytes of what they allow, never by how many tokens that
is (section 7.2): beside the variant runs a reference on the same engine, with exact token bytes
and no forcing, so that its masks are walks over the true trie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any, Literal

from llgbench import bridge
from llgbench._native import ffi, lib
from llgbench.case import Case, Outcome, Text
from llgbench.engine import Engine, Matcher, TokenArray, Tokenizer
from llgbench.replay import End
from llgbench.variant import Variant
from llgbench.vocab import Vocab

Label = Literal["right", "limited", "wrong"]


@dataclass(frozen=True)
class Judgement:
    """One text under one variant, beside the reference.

    Attributes:
        text: its name.
        steps: masks compared, for as long as the variant and the reference both go on.
        end: how the variant's matcher ended.
        accepted: whether the variant accepts the whole text.
        reference_accepted: whether exact bytes on the same engine accept it.
        reject_at: offset of the first byte that cannot be consumed; None where accepted.
        forbidden: (step, token) pairs allowed though the token's real bytes are not.
        missing: pairs not allowed though they should be, but for steps narrowed by forcing.
        narrowed_steps: steps in which forcing left one right token of several.
        first_step: the step of the first forbidden or missing token; None where there is none.
        first_token: that token.
        inside_ns: time inside llguidance.
    """

    text: str
    steps: int
    end: End
    accepted: bool
    reference_accepted: bool
    reject_at: int | None
    forbidden: int
    missing: int
    narrowed_steps: int
    first_step: int | None
    first_token: int | None
    inside_ns: int


@dataclass(frozen=True)
class Verdict:
    """Whether a variant's masks are right on one case and vocab.

    Attributes:
        label: ``right``; ``limited``, where every mask is what this lexer can know and yet a text
            of the grammar is rejected, as case.toml records; ``wrong``.
        reason: one line; empty where right.
        judgements: one a text.
    """

    label: Label
    reason: str
    judgements: tuple[Judgement, ...] = field(repr=False)

    @property
    def forbidden(self) -> int:
        """Forbidden (step, token) pairs allowed over all texts."""
        return sum(j.forbidden for j in self.judgements)

    @property
    def missing(self) -> int:
        """Right (step, token) pairs not allowed over all texts."""
        return sum(j.missing for j in self.judgements)

    @property
    def accepted(self) -> int:
        """How many texts are accepted."""
        return sum(j.accepted for j in self.judgements)

    @property
    def inside_ns(self) -> int:
        """Time the judgement spent inside llguidance."""
        return sum(j.inside_ns for j in self.judgements)

    def __str__(self) -> str:
        return f"{self.label}: {self.reason}" if self.reason else self.label

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        return {
            "label": self.label,
            "reason": self.reason,
            "forbidden": self.forbidden,
            "missing": self.missing,
            "accepted": self.accepted,
            "texts": [{**asdict(j), "end": j.end.name.lower()} for j in self.judgements],
        }


def judge_text(
    tokenizer: Tokenizer, reference: Tokenizer, grammar: str, text: Text, trace: TokenArray,
    vocab: Vocab,
) -> Judgement:  # fmt: skip
    """Judge one text under a variant's tokenizer beside the reference's.

    Args:
        tokenizer: the variant's.
        reference: exact bytes, nothing forced, on the same engine.
        grammar: Lark, with the variant's options.
        text: for its name.
        trace: its tokens without an end token, shape (n,), uint32.
        vocab: gives the tokens' real bytes.

    Raises:
        GrammarError: the grammar does not compile.
    """
    out = ffi.new("lb_judgement *")
    with tokenizer.matcher(grammar) as matcher, reference.matcher(grammar) as truth:
        lib.lb_judge(
            tokenizer.engine.api, matcher.pointer, truth.pointer,
            ffi.from_buffer("uint32_t[]", trace), len(trace), out,
        )  # fmt: skip
        inside = int(out.inside_ns) + matcher.compile_ns + truth.compile_ns
        end = End(out.outcome)
        reject_at = None
        if not (end is End.WHOLE and out.accepting):
            taken = int(out.taken)
            reject_at = len(vocab.spell(trace[:taken]))
            together = out.reference_outcome == End.REJECTED and out.reference_taken == taken
            if end is End.REJECTED and together:
                reject_at += _bytes_taken(truth, vocab, int(trace[taken]))
    reference_whole = out.reference_outcome == lib.LB_END
    found = out.first_step != 0xFFFFFFFF
    return Judgement(
        text=text.name,
        steps=int(out.n_steps),
        end=end,
        accepted=reject_at is None,
        reference_accepted=bool(reference_whole and out.reference_accepting),
        reject_at=reject_at,
        forbidden=int(out.forbidden),
        missing=int(out.missing),
        narrowed_steps=int(out.narrowed_steps),
        first_step=int(out.first_step) if found else None,
        first_token=int(out.first_token) if found else None,
        inside_ns=inside,
    )


def _bytes_taken(truth: Matcher, vocab: Vocab, token: int) -> int:
    """Return how many bytes of a rejected token could be consumed, where single bytes are tokens.

    Both matchers stand before the token, and the reference takes bytes for what they are.
    """
    spelled = [vocab.byte_token(byte) for byte in vocab.table("token_to_piece").tokens[token]]
    known = [t for t in takewhile(lambda t: t is not None, spelled) if t is not None]
    return max(truth.validate(known), 0) if known else 0


def judge(
    tokenizer: Tokenizer, reference: Tokenizer, variant: Variant, case: Case, grammar: str,
    traces: Sequence[TokenArray], vocab: Vocab,
) -> Verdict:  # fmt: skip
    """Judge every text of a case; see :func:`judge_text` for the arguments."""
    judgements = tuple(
        judge_text(tokenizer, reference, grammar, text, trace, vocab)
        for text, trace in zip(case.texts, traces, strict=True)
    )
    return summarize(variant, case, judgements, vocab)


def summarize(
    variant: Variant, case: Case, judgements: Sequence[Judgement], vocab: Vocab
) -> Verdict:
    """Return the verdict that the judgements of a case's texts, in order, amount to."""
    label, reason = _summarize(variant, case, judgements, vocab)
    return Verdict(label, reason, tuple(judgements))


def _summarize(
    variant: Variant, case: Case, judgements: Sequence[Judgement], vocab: Vocab
) -> tuple[Label, str]:
    for text, j in zip(case.texts, judgements, strict=True):
        wrong = _bridge_fault(text, j, vocab) or _engine_fault(text, j, variant)
        if wrong:
            return "wrong", wrong
    for text, j in zip(case.texts, judgements, strict=True):
        if not j.accepted and text.fallback is not None and text.fallback.accepted:
            return "limited", f"rejects {text.name!r} at byte {j.reject_at}, as recorded"
    return "right", ""


def _bridge_fault(text: Text, j: Judgement, vocab: Vocab) -> str | None:
    """Return what the bridge does wrong: the same engine with exact bytes does otherwise."""
    if j.end in (End.MASK_ERROR, End.CONSUME_ERROR):
        return f"llguidance fails on {text.name!r} at step {j.steps}: the grammar is dropped"
    if j.forbidden and j.first_token is not None:
        piece = vocab.table("token_to_piece").tokens[j.first_token]
        return (
            f"allows {j.forbidden} forbidden tokens, the first {piece!r} at step {j.first_step} "
            f"of {text.name!r}"
        )
    if j.accepted != j.reference_accepted:
        did = "accepts a wrong" if j.accepted else "rejects a right"
        at = "" if j.accepted else f" at byte {j.reject_at}"
        return f"{did} text {text.name!r}{at}"
    if j.missing:
        return f"forbids {j.missing} right tokens, the first at step {j.first_step}"
    return None


def _engine_fault(text: Text, j: Judgement, variant: Variant) -> str | None:
    """Return where the engine does not do what the case records of it."""
    expected = text.fallback if variant.fallback else text.stock
    if expected is None:
        # A MaskBench test that its schema calls invalid: where it fails is not recorded.
        return f"accepts the invalid text {text.name!r}" if j.accepted else None
    if expected.accepted and not j.accepted:
        return f"rejects {text.name!r} at byte {j.reject_at}, recorded as accepted"
    if not expected.accepted and j.accepted:
        return f"accepts {text.name!r}, recorded as {expected}"
    return None


def outcome(engine: Engine, case: Case, text: Text, variant: Variant) -> Outcome:
    """Return what the engine's lexer does with a text, byte by byte, apart from any vocabulary.

    Raises:
        GrammarError: the grammar does not compile.
    """
    grammar = case.lark(bridge.options(engine, variant))
    with bridge.byte_tokenizer(engine) as tokenizer, tokenizer.matcher(grammar) as matcher:
        for at, byte in enumerate(text.data):
            if matcher.validate([byte]) != 1 or not matcher.consume(byte):
                return Outcome(at)
        return Outcome() if matcher.is_accepting() else Outcome(len(text.data))


# The three probes of the first document; sections 4.4 and 5.1/7.2.
NO_SPACE_GRAMMAR = 'start: /[.a-z]{2,6}/ "!"'
FORCED_GRAMMAR = 'start: "hello world"'
FORCED_TEXT = b"hello world"


@dataclass(frozen=True)
class TokenBytes:
    """Section 4.3: how the two ways to ask for a token's bytes differ.

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
    """Sections 4.4, 5.1 and 7.2 for one vocab and variant.

    Attributes:
        spaced: allowed tokens at position 0 of NO_SPACE_GRAMMAR whose real bytes hold a space.
        no_space_allowed: all allowed tokens there.
        forced: ids allowed at position 0 of FORCED_GRAMMAR.
        forced_bytes: their real bytes, decoded with replacement characters.
        forced_right: whether each of these is a prefix of the one text of the grammar.
        greedy: whether llguidance was left without a tokenize_fn.
    """

    vocab: str
    variant: str
    spaced: int
    no_space_allowed: int
    forced: tuple[int, ...]
    forced_bytes: tuple[str, ...]
    forced_right: bool
    greedy: bool

    @property
    def right(self) -> bool:
        """Whether both masks allow only what the grammars allow."""
        return self.spaced == 0 and self.forced_right and bool(self.forced)


def probes(vocab: Vocab, variant: Variant, tokenizer: Tokenizer, engine: Engine) -> Probes:
    """Ask the two grammars of the first document for their first masks."""
    pieces = vocab.table("token_to_piece").tokens
    header = Case("probe", "lark", "", vocab.path, "", ()).lark(bridge.options(engine, variant))
    allowed = _first_mask(tokenizer, header + NO_SPACE_GRAMMAR)
    forced = _first_mask(tokenizer, header + FORCED_GRAMMAR)
    return Probes(
        vocab=vocab.name,
        variant=variant.name,
        spaced=sum(b" " in pieces[t] for t in allowed),
        no_space_allowed=len(allowed),
        forced=tuple(forced),
        forced_bytes=tuple(pieces[t].decode(errors="replace") for t in forced),
        forced_right=all(FORCED_TEXT.startswith(pieces[t]) for t in forced),
        greedy=not tokenizer.forces,
    )


def _first_mask(tokenizer: Tokenizer, grammar: str) -> list[int]:
    with tokenizer.matcher(grammar) as matcher:
        allowed = matcher.allowed()
        return [] if allowed is None else allowed.tolist()
