"""The verdict in three parts: the texts as recorded, the masks beside the exact reference's, and
the engine with itself."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llgbench._native import ffi, lib
from llgbench.engines.engine import TokenArray
from llgbench.inputs.case import Outcome as Recorded
from llgbench.inputs.case import Text
from llgbench.llama.vocab import Vocab
from llgbench.measure.replay import End
from llgbench.peers import classes
from llgbench.peers.adapter import Compiled
from llgbench.peers.results import Difference, Masks, Outcome

_NONE = 0xFFFFFFFF
_DIFFERENCE = np.dtype(
    [
        ("extra", np.uint32), ("missing", np.uint32), ("token", np.uint32),
        ("classes", np.uint16), ("forced", np.uint8), ("token_extra", np.uint8),
    ]
)  # fmt: skip
assert _DIFFERENCE.itemsize == ffi.sizeof("lb_peer_difference")


@dataclass(frozen=True)
class TextJudgement:
    """One text under an engine, beside the reference.

    Attributes:
        outcome: as the case's, of this text alone.
        reason: one line; empty where right.
        masks: compared.
        comparable: of each step, whether its masks are equal or a class explains the difference;
            shape (steps,), bool.
        tried: allowed tokens that the engine was asked to accept.
        inside_s: CPU time in the engine and the reference.
    """

    outcome: Outcome
    reason: str
    masks: Masks
    comparable: npt.NDArray[np.bool_]
    tried: int
    inside_s: float


class Judge:
    """Judges texts by one reference; keeps what is the same for all of them."""

    def __init__(self, vocab: Vocab, *, json: bool) -> None:
        """Prepare the sets of tokens; ``json`` where the grammars are of JSON."""
        self._vocab = vocab
        self._json = json
        self._asked = classes.text_tokens(vocab)
        self._sets = classes.sets(vocab, json=json)
        self._asked_view = ffi.from_buffer("uint32_t[]", self._asked)
        self._sets_view = ffi.from_buffer("uint32_t[]", self._sets)

    def judge(
        self, compiled: Compiled, reference: Compiled, text: Text, trace: TokenArray,
        recorded: Recorded | None,
    ) -> TextJudgement:  # fmt: skip
        """Judge one text.

        Args:
            compiled: the engine's grammar.
            reference: the same of the exact reference.
            text: what the trace is of.
            trace: its tokens, without an end token; shape (n,), uint32.
            recorded: what the case records of the text; None: nothing.
        """
        differences = np.zeros(len(trace) + 1, _DIFFERENCE)
        states = classes.states(trace, self._vocab) if self._json else np.zeros(
            len(trace) + 1, np.uint8
        )  # fmt: skip
        out = ffi.new("lb_peer_judgement *")
        # By the CPU's time, which what else runs on the machine does not change; within the call by
        # the clock, where what interrupts it falls on both parts alike.
        begin = time.process_time()
        with compiled.start() as matcher, reference.start() as truth:
            made = time.process_time()
            lib.lb_peer_judge(
                compiled.peer.table, matcher.pointer, reference.peer.table, truth.pointer,
                compiled.vocabulary.words, self._asked_view,
                compiled.vocabulary.eos,
                ffi.from_buffer("uint8_t[]", states), self._sets_view,
                ffi.from_buffer("uint32_t[]", trace), len(trace),
                ffi.from_buffer("lb_peer_difference[]", differences, require_writable=True), out,
            )  # fmt: skip
            judged = time.process_time()
        freed = time.process_time()
        inside_s = made - begin + float(out.inside_share) * (judged - made) + freed - judged
        found = differences[: out.n_steps]
        same = (found["extra"] == 0) & (found["missing"] == 0)
        differing = (found["token"] != _NONE) & (found["forced"] == 0)
        outcome, reason = self._outcome(out, text, trace, recorded)
        if outcome == "accepts invalid" and not self._json and compiled.peer.spec is not None:
            # Of Lark there is no standard: without a lexer, what it would not split is in the
            # grammar all the same.
            outcome = "another reading"
        return TextJudgement(
            outcome, reason, self._masks(found, same, differing, text, trace), ~differing,
            int(out.asked), inside_s,
        )  # fmt: skip

    def _masks(
        self, found: npt.NDArray[np.void], same: npt.NDArray[np.bool_],
        differing: npt.NDArray[np.bool_], text: Text, trace: TokenArray,
    ) -> Masks:  # fmt: skip
        explained: dict[str, int] = {}
        forced = int(np.count_nonzero(found["forced"]))
        if forced:
            explained[classes.FORCED.name] = forced
        for at, known in enumerate(classes.CLASSES):
            n = int(np.count_nonzero((found["classes"] >> at & 1 != 0) & ~differing))
            if n:
                explained[known.name] = n
        first = None
        if differing.any():
            step = int(np.argmax(differing))
            here = found[step]
            first = Difference(
                text=text.name,
                step=step,
                after=self._vocab.spell(trace[:step])[-40:],
                token=self._vocab.table("token_to_piece").tokens[int(here["token"])],
                extra=bool(here["token_extra"]),
                n_extra=int(here["extra"]),
                n_missing=int(here["missing"]),
            )
        return Masks(
            len(found), int(np.count_nonzero(same)), explained,
            int(np.count_nonzero(differing)), first,
        )  # fmt: skip

    def _outcome(
        self, out: object, text: Text, trace: TokenArray, recorded: Recorded | None
    ) -> tuple[Outcome, str]:
        j: lib.lb_peer_judgement = out
        pieces = self._vocab.table("token_to_piece").tokens
        if j.refused_token != _NONE:
            token = pieces[int(j.refused_token)]
            return "contradicts itself", (
                f"its mask allows {token!r} at step {j.refused_step} of {text.name!r}, and it "
                "does not accept it"
            )
        end, taken = End(j.outcome), int(j.taken)
        if end in (End.MASK_ERROR, End.CONSUME_ERROR):
            did = "gives no mask" if end is End.MASK_ERROR else "refuses a token that it allows"
            return "contradicts itself", f"{did} at step {taken} of {text.name!r}"
        if recorded is None:
            return "not judged", f"nothing is recorded of {text.name!r}"
        accepted = end is End.WHOLE and bool(j.complete)
        if accepted and recorded.accepted:
            return "right", ""
        begin = len(self._vocab.spell(trace[:taken]))
        if recorded.accepted:
            at = "at its end" if end is End.WHOLE else f"at byte {begin}"
            token = pieces[int(trace[taken])] if taken < len(trace) else b""
            return "refuses valid", f"{text.name!r} {at}" + (f", token {token!r}" if token else "")
        if accepted:
            return "accepts invalid", repr(text.name)
        if recorded.reject_at is None or end is End.STOPPED:
            return "right", ""
        # The engine names a token, the record a byte: it must be one of the token's.
        last = begin + (len(pieces[int(trace[taken])]) if taken < len(trace) else 0)
        if recorded.reject_at < begin:
            return "accepts invalid", (
                f"{text.name!r} up to byte {begin}, which is wrong at byte {recorded.reject_at}"
            )
        if recorded.reject_at > last:
            return "refuses valid", (
                f"{text.name!r} at byte {begin}, which is right up to byte {recorded.reject_at}"
            )
        return "right", ""


_WORST: tuple[Outcome, ...] = (
    "contradicts itself", "accepts invalid", "refuses valid", "another reading", "not judged",
    "right",
)  # fmt: skip


def together(judged: list[TextJudgement]) -> tuple[Outcome, str, Masks]:
    """Return what the judgements of a case's texts amount to: the worst, and all masks."""
    explained: dict[str, int] = {}
    for one in judged:
        for name, n in one.masks.explained.items():
            explained[name] = explained.get(name, 0) + n
    masks = Masks(
        sum(one.masks.steps for one in judged),
        sum(one.masks.equal for one in judged),
        explained,
        sum(one.masks.differing for one in judged),
        next((one.masks.first for one in judged if one.masks.first is not None), None),
    )
    for worst in _WORST:
        for one in judged:
            if one.outcome == worst:
                return worst, one.reason, masks
    return "not judged", "it has no texts", masks
