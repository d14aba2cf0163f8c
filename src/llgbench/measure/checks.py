"""What is right: the verdict that stands beside every time, and the probes of a vocabulary.

A variant's masks are judged by the real bytes of what they allow, never by how many tokens that
is: beside the variant runs a reference on the same engine, with exact token bytes and no forcing,
so that its masks are walks over the true trie. What both have in common is the engine; it is asked
about its own masks, and held against what the case records of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from llgbench._native import ffi, lib
from llgbench.engines.engine import Matcher, TokenArray, Tokenizer
from llgbench.files import one_line
from llgbench.inputs.case import Case, Outcome, Text
from llgbench.inputs.variant import Variant
from llgbench.llama.vocab import Vocab
from llgbench.measure.hints import hint
from llgbench.measure.outcomes import outcome_by, recorded, special_names, unlike_recorded
from llgbench.measure.replay import End

Label = Literal["right", "limited", "refused", "not judged", "wrong"]

_NONE = 0xFFFFFFFF


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
        engine_fault: what the engine says of its own masks that cannot be so; empty where nothing.
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
    engine_fault: str = ""

    @property
    def outcome(self) -> Outcome:
        """What the variant does with the text."""
        return Outcome(self.reject_at)


@dataclass(frozen=True)
class Verdict:
    """Whether a variant's masks are right on one case and vocab.

    Attributes:
        label: ``right``; ``limited``, where every mask is what this lexer can know and yet a text
            of the grammar is rejected, as case.toml records; ``refused``, where every mask is
            right and a text of which nothing is recorded is not in the grammar; ``not judged``,
            where there is no mask to judge; ``wrong``.
        reason: one line; empty where right.
        judgements: one per text.
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
        text: what the trace is of.
        trace: its tokens without an end token, shape (n,), uint32.
        vocab: gives the tokens' real bytes.

    Raises:
        GrammarError: the grammar does not compile.
        EngineError: the engine gives no matcher, or no mask of the vocabulary's size.
    """
    out = ffi.new("lb_judgement *")
    asked = _askable(vocab, reference)
    with tokenizer.matcher(grammar) as matcher, reference.matcher(grammar) as truth:
        lib.lb_judge(
            tokenizer.engine.api, matcher.pointer, truth.pointer, reference.mask_words,
            ffi.from_buffer("uint32_t[]", asked),
            ffi.new("uint32_t[]", reference.mask_words),
            ffi.from_buffer("uint32_t[]", trace), len(trace), out,
        )  # fmt: skip
        inside = int(out.inside_ns) + matcher.compile_ns + truth.compile_ns
        end = End(out.outcome)
        fault = _engine_fault(text, out, truth, vocab)
        reject_at = None
        if not (end is End.WHOLE and out.accepting):
            taken = int(out.taken)
            reject_at = _length(trace[:taken], vocab)
            together = out.reference_outcome == End.REJECTED and out.reference_taken == taken
            if end is End.REJECTED and together and not fault:
                found = _bytes_taken(truth, vocab, int(trace[taken]))
                if found is None:  # the vocabulary cannot tell; single bytes can
                    reject_at = outcome_by(
                        tokenizer.engine, grammar, text, special_names(vocab)
                    ).reject_at
                else:
                    reject_at += found
    reference_whole = out.reference_outcome == lib.LB_END
    differs = out.first_step != _NONE
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
        first_step=int(out.first_step) if differs else None,
        first_token=int(out.first_token) if differs else None,
        inside_ns=inside,
        engine_fault=fault,
    )


def _askable(vocab: Vocab, reference: Tokenizer) -> npt.NDArray[np.uint32]:
    """Return the tokens that validate_tokens may be asked for, as the words of a mask.

    A token without bytes is in no mask and yet takes nothing to consume.
    """
    bits = np.zeros(32 * reference.mask_words, bool)
    lens = vocab.table("token_to_piece").lens
    bits[: len(lens)] = lens > 0
    return np.packbits(bits, bitorder="little").view(np.uint32)


def _engine_fault(text: Text, out: Any, truth: Matcher, vocab: Vocab) -> str:
    """Return what the reference says that no bridge makes so; empty where nothing."""
    fault = out.fault
    token = ""
    if fault.token != _NONE:
        token = f"token {fault.token} ({vocab.table('token_to_piece').tokens[fault.token]!r})"
    said = {
        lib.LB_FAULT_STATUS: f"compute_mask returns {fault.status}",
        lib.LB_FAULT_NO_MASK: "compute_mask succeeds without a mask",
        lib.LB_FAULT_LEFT_OUT: f"the mask forbids {token}, which validate_tokens takes",
        lib.LB_FAULT_LET_IN: f"the mask allows {token}, which validate_tokens refuses",
        lib.LB_FAULT_VALIDATE: f"validate_tokens of {token} returns {fault.status}",
        lib.LB_FAULT_CONSUME: f"{token} is allowed and cannot be consumed",
    }.get(fault.kind)
    step = fault.step
    if said is None and out.reference_outcome in (End.MASK_ERROR, End.CONSUME_ERROR):
        said, step = "it fails with exact bytes, too", out.reference_taken
    if said is None:
        return ""
    words = truth.error()
    because = f" ({one_line(words, 120)})" if words else ""
    return f"{said}, at step {step} of {text.name!r}{because}"


def _length(tokens: TokenArray, vocab: Vocab) -> int:
    """Return how many bytes of a text its tokens stand for; the mark of a special one is none."""
    table = vocab.table("token_to_piece")
    return int(table.lens[tokens].sum()) - int(table.marked[tokens].sum())


def _bytes_taken(truth: Matcher, vocab: Vocab, token: int) -> int | None:
    """Return how many bytes of a rejected token could be consumed, where single bytes are tokens.

    Both matchers stand before the token, and the reference takes bytes for what they are. None
    where it takes all that the vocabulary can spell of the token, and that is not the whole.
    """
    table = vocab.table("token_to_piece")
    if table.marked[token]:
        return 0
    spelled = [vocab.byte_token(byte) for byte in table.tokens[token]]
    known = [t for t in takewhile(lambda t: t is not None, spelled) if t is not None]
    taken = max(truth.validate(known), 0) if known else 0
    return taken if taken < len(known) or len(known) == len(spelled) else None


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
    pairs = list(zip(case.texts, judgements, strict=True))
    if not pairs:
        return "not judged", "it has no texts"
    for text, j in pairs:
        if j.engine_fault:
            return "wrong", f"engine: {j.engine_fault}"
        wrong = _bridge_fault(text, j, vocab) or unlike_recorded(text, j.outcome, variant)
        if wrong:
            return "wrong", wrong
    if not any(j.steps for j in judgements):
        return "not judged", "no mask was computed"
    for text, j in pairs:
        if not j.accepted and text.fallback is not None and text.fallback.accepted:
            return "limited", f"rejects {text.name!r} at byte {j.reject_at}, as recorded"
    for text, j in pairs:
        if j.reject_at is not None and recorded(text, variant) is None:
            said = f"text not in the grammar (byte {j.reject_at}): {text.name!r}"
            return "refused", said + hint(case, text, j.reject_at, special_names(vocab))
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
