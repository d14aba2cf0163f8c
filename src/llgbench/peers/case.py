"""One case under one engine: judged beside the exact reference, timed in turn with llguidance.

All of it runs in a process of its own (host.py). The engine and llguidance take turns on the same
tokens, so that what slows the machine slows both; a ratio is formed within the process alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from llgbench.engines.engine import TokenArray
from llgbench.errors import GrammarError, LlgbenchError, UnavailableError
from llgbench.fallback import heap
from llgbench.files import one_line
from llgbench.inputs.case import Case, Text
from llgbench.inputs.case import Outcome as Recorded
from llgbench.llama.vocab import Vocab
from llgbench.measure.replay import Replay
from llgbench.measure.trace import trace_of
from llgbench.peers import grammars
from llgbench.peers.adapter import Compiled, Vocabulary, with_end
from llgbench.peers.grammars import Source, WhiteSpace
from llgbench.peers.judge import Judge, TextJudgement, together
from llgbench.peers.results import CaseResult, Masks, Pairs, Samples

# A grammar that took longer is compiled once for all texts of its case, not once for each.
_SLOW_NS = 1_500_000_000


@dataclass(frozen=True)
class Bench:
    """What a process has at hand: an engine, llguidance, and the reference, on one vocabulary.

    Attributes:
        vocab: opened.
        white_space: of the configuration.
        engine: with its vocabulary.
        base: llguidance, as ratios are formed over it.
        exact: llguidance with exact bytes and nothing forced, by which JSON is judged.
        fallback: the same on an engine with the fallback, by which Lark is; None where none is.
        fallback_option: the grammar option that turns it on.
    """

    vocab: Vocab
    white_space: WhiteSpace
    engine: Vocabulary
    base: Vocabulary
    exact: Vocabulary
    fallback: Vocabulary | None
    fallback_option: str | None

    def run(self, case: Case, judge: Judge, rounds: int) -> CaseResult:
        """Judge a case, and time it where ``rounds`` is not 0; see :class:`CaseResult`."""
        peer = self.engine.peer
        label = grammars.white_space_of(case, self.white_space)
        found = CaseResult(
            case.name, self.vocab.name, peer.name, label, "not available",
            release=peer.release, vocabulary_ns=self.engine.ns,
        )  # fmt: skip
        written = grammars.written(case, self.white_space)
        try:
            source = grammars.source(peer.spec, written, self.white_space)
            traces = [trace_of(text, self.vocab) for text in written.texts]
        except UnavailableError as why:
            return _with(found, reason=one_line(why))
        except GrammarError as why:
            return _with(found, outcome="does not compile", reason=one_line(why))
        before = _heap()
        with ExitStack() as stack:
            try:
                compiled = stack.enter_context(self.engine.compile(source))
            except GrammarError as why:
                return _with(found, outcome="does not compile", reason=one_line(why))
            size = None if before is None else (_heap() or 0) - before
            reference = self._reference(case, written)
            if reference is not None:
                stack.enter_context(reference)
            judged = self._judge(judge, compiled, reference, written, traces)
            outcome, reason, masks = together(judged)
            samples = base = pairs = matcher_bytes = None
            inside = compiled.cpu_s + (reference.cpu_s if reference else 0.0)
            inside += sum(one.inside_s for one in judged)
            if rounds and outcome != "contradicts itself":
                ended = [with_end(t, self.vocab.eos) for t in traces]
                matcher_bytes = _matcher_bytes(compiled, ended)
                samples, base, pairs = _Timing(self, source, written, ended).run(
                    judged, compiled, rounds
                )
            return _with(
                found, outcome=outcome, reason=reason, masks=masks,
                reference=reference.peer.release if reference else "",
                tried=sum(one.tried for one in judged), samples=samples, base=base, pairs=pairs,
                memory_bytes=size if size is not None and size > 0 else compiled.memory,
                matcher_bytes=matcher_bytes, inside_s=inside,
            )  # fmt: skip

    def _reference(self, case: Case, written: Case) -> Compiled | None:
        """Return the reference's grammar; None where there is none that says what is right.

        An engine that reads a grammar as it stands accepts what the greedy lexeme fallback does;
        llguidance itself is judged by its own lexer.
        """
        own = self.engine.peer.spec is None
        try:
            if case.kind == "json_schema" or own:
                return self.exact.compile(grammars.source(None, written, self.white_space))
            if self.fallback is None or self.fallback_option is None:
                return None
            text = case.lark({self.fallback_option: True})
            return self.fallback.compile(Source(grammars.LARK, text))
        except GrammarError:
            return None

    def _judge(
        self, judge: Judge, compiled: Compiled, reference: Compiled | None, case: Case,
        traces: Sequence[TokenArray],
    ) -> list[TextJudgement]:  # fmt: skip
        own = self.engine.peer.spec is None
        judged = [
            judge.judge(compiled, reference or compiled, text, trace, _recorded(text, own))
            for text, trace in zip(case.texts, traces, strict=True)
        ]
        return judged if reference is not None else [_unjudged(one) for one in judged]


def _recorded(text: Text, own: bool) -> Recorded | None:
    return text.stock if own else text.fallback


def _unjudged(judged: TextJudgement) -> TextJudgement:
    """Return a judgement whose masks were compared with themselves, which says nothing of them."""
    nothing = np.zeros(len(judged.comparable), bool)
    return replace(judged, masks=Masks(), comparable=nothing)


def _with(found: CaseResult, **changes: object) -> CaseResult:
    return replace(found, **changes)  # type: ignore[arg-type]


def _heap() -> int | None:
    try:
        return heap.in_use()
    except LlgbenchError:
        return None


def _matcher_bytes(compiled: Compiled, traces: Sequence[TokenArray]) -> int | None:
    """Return what one more matcher takes on the heap at the end of the longest text.

    All texts were judged on the same grammar, so that what matchers share is there.
    """
    before = _heap()
    if before is None or not traces:
        return None
    with compiled.start() as matcher:
        matcher.replay(max(traces, key=len))
        return max((_heap() or 0) - before, 0)


class _Timing:
    """The timed part of a case: the engine and llguidance in turn."""

    def __init__(
        self, bench: Bench, source: Source, case: Case, traces: Sequence[TokenArray]
    ) -> None:
        self._bench, self._traces = bench, traces
        base = grammars.source(None, case, bench.white_space)
        self._sides: list[tuple[Vocabulary, Source]] = [
            (bench.engine, source), (bench.base, base)
        ]  # fmt: skip

    def run(
        self, judged: list[TextJudgement], compiled: Compiled, rounds: int
    ) -> tuple[Samples, Samples | None, Pairs]:
        """Replay every text; return the engine's times, llguidance's, and what may be compared."""
        samples = (Samples(), Samples())
        pairs = Pairs()
        slow = compiled.ns > _SLOW_NS
        for number in range(rounds):
            for at, one in enumerate(judged):
                done: dict[int, tuple[Replay, Replay]] = {}
                for side in (0, 1) if (at + number) % 2 == 0 else (1, 0):
                    # Of a slow one the judged grammar serves all texts, and is cold to none.
                    known = compiled if slow and side == 0 else None
                    done[side] = self._text(side, at, samples[side], known)
                (cold, warm), (base_cold, base_warm) = done[0], done[1]
                _pair(pairs, [cold, base_cold], [warm, base_warm], one.comparable)
        if slow:
            samples[0].compile_ns.append(compiled.ns)
        return samples[0], samples[1], pairs

    def _text(
        self, side: int, at: int, into: Samples, known: Compiled | None
    ) -> tuple[Replay, Replay]:
        vocabulary, source = self._sides[side]
        trace = self._traces[at]
        compiled = known or vocabulary.compile(source)
        try:
            with compiled.start() as matcher:
                if known is None:
                    into.compile_ns.append(compiled.ns + matcher.ns)
                cold = matcher.replay(trace)
                if len(cold.op_ns):
                    into.first_mask_ns.append(int(cold.op_ns[0]))
                into.cold_mask_ns.extend(cold.op_ns.tolist())
                into.cold_accept_ns.extend(cold.consume_ns.tolist())
                tenth = len(cold.op_ns) // 10
                if tenth >= 10:
                    into.head_mask_ns.extend(cold.op_ns[:tenth].tolist())
                    into.tail_mask_ns.extend(cold.op_ns[-tenth:].tolist())
                warm = matcher.replay(trace, reset=True)
                into.warm_mask_ns.extend(warm.op_ns.tolist())
                into.warm_accept_ns.extend(warm.consume_ns.tolist())
                if len(self._traces) > 1:
                    other = (matcher.fork() if matcher.reset() else None) or compiled.start()
                    with other:
                        sibling = other.replay(self._traces[(at + 1) % len(self._traces)])
                    into.sibling_mask_ns.extend(sibling.op_ns.tolist())
                    into.sibling_accept_ns.extend(sibling.consume_ns.tolist())
            return cold, warm
        finally:
            if known is None:
                compiled.close()


def _pair(
    pairs: Pairs, cold: list[Replay], warm: list[Replay], comparable: npt.NDArray[np.bool_]
) -> None:  # fmt: skip
    for replays, comparable_ns, base_ns, left_out in (
        (cold, pairs.engine_ns, pairs.base_ns, pairs.left_out),
        (warm, pairs.engine_warm_ns, pairs.base_warm_ns, []),
    ):
        ours, theirs = (done.op_ns for done in replays)
        n = min(len(ours), len(theirs), len(comparable))
        which = comparable[:n]
        comparable_ns.extend(ours[:n][which].tolist())
        base_ns.extend(theirs[:n][which].tolist())
        left_out.extend(ours[:n][~which].tolist())
        left_out.extend(ours[n:].tolist())
