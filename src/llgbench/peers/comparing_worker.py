"""One process of a comparison of engines: both loaded, judged by each other, replayed in turn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from llgbench.compare import sides
from llgbench.compare.facts import Common
from llgbench.compare.messages import Answer, CaseAnswer, Job, Samples, SideTimes
from llgbench.compare.side import SIDES, Name, Pair, Side
from llgbench.compare.worker import MAX_ROUNDS, MIN_ROUNDS, machine_metadata
from llgbench.engines import peers
from llgbench.engines.engine import TokenArray
from llgbench.errors import CompareError, GrammarError, UnavailableError
from llgbench.files import one_line
from llgbench.inputs import case_file
from llgbench.inputs.case import Case
from llgbench.llama.vocab import Vocab, open_vocab
from llgbench.measure.replay import End, Replay
from llgbench.measure.trace import trace_of
from llgbench.peers import grammars
from llgbench.peers.adapter import Compiled, PeerMatcher, Vocabulary, load, with_end
from llgbench.peers.grammars import Source, WhiteSpace
from llgbench.peers.judge import Judge, TextJudgement, together

# What takes longer is compiled once a round for all texts, by both sides alike.
_SLOW_NS = 200_000_000

Kept = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Prepared:
    """A case that both engines compile.

    Attributes:
        case: in the white space of the comparison.
        sources: its grammar.
        traces: of its texts, with the end token.
        kept: of each text, which steps are compared; shape (steps,), bool.
        common: what they have in common.
        slow: whether a grammar serves all texts of a round.
    """

    case: Case
    sources: Pair[Source]
    traces: list[TokenArray]
    kept: list[Kept]
    common: Common
    slow: bool


def run(job: Job) -> Answer:
    """Judge and measure.

    Raises:
        CompareError: no case can be compared, or a side fails in the middle of a text.
        LlgbenchError: an engine or an input cannot be had.
    """
    started = time.monotonic()
    white_space = cast(WhiteSpace, job.white_space)
    with ExitStack() as stack:
        vocab = stack.enter_context(open_vocab(job.vocab))
        of_side = {}
        for side in SIDES if job.number % 2 == 0 else SIDES[::-1]:
            peer = load(_name(job.sides.of(side)), vocab, white_space, apart=True)
            of_side[side] = stack.enter_context(Vocabulary(peer, vocab))
        engines = Pair(of_side["base"], of_side["head"])
        judges: dict[bool, Judge] = {}
        prepared: dict[str, _Prepared] = {}
        common: list[Common] = []
        for name in job.cases:
            loaded = case_file.load(name)
            json = loaded.kind == "json_schema"
            judge = judges.setdefault(json, Judge(vocab, json=json))
            try:
                one = _prepare(loaded, engines, judge, vocab, white_space)
            except (GrammarError, UnavailableError) as error:
                common.append(Common(name, refused=one_line(error), vocab=job.vocab))
                continue
            common.append(one.common)
            if any(kept.any() for kept in one.kept):
                prepared[name] = one
        if not prepared:
            why = "; ".join(f"{c.case}: {c.refused or c.first}" for c in common)
            raise CompareError(f"no case can be compared: {why}")
        setup_s = time.monotonic() - started
        cases = {}
        for at, (name, one) in enumerate(prepared.items()):
            left = started + setup_s + job.seconds - time.monotonic()
            rounds, times = _measure(one, engines, left / (len(prepared) - at), job.number)
            texts = tuple(
                t.name for t, kept in zip(one.case.texts, one.kept, strict=True) if kept.any()
            )
            cases[name] = CaseAnswer(texts, one.common.steps, rounds, times)
    return Answer(
        vocab=job.vocab, cases=cases, common=tuple(common),
        tokenizer_ns=engines.map(lambda vocabulary: vocabulary.ns), setup_s=setup_s,
        wall_s=time.monotonic() - started, metadata=machine_metadata(),
    )  # fmt: skip


def _name(side: Side) -> str:
    """Return what an engine is loaded by: llguidance's library, another's specification."""
    spec = side.spec.removesuffix(sides.COPY)
    return str(side.library) if peers.parse(spec) is None else spec


def _prepare(
    loaded: Case, engines: Pair[Vocabulary], judge: Judge, vocab: Vocab, white_space: WhiteSpace
) -> _Prepared:
    """Judge the engines by each other.

    Raises:
        GrammarError, UnavailableError: a side does not compile the case, or has no form of it.
    """
    case = grammars.written(loaded, white_space)
    sources = engines.map(lambda e: grammars.source(e.peer.spec, case, white_space))
    traces = [trace_of(text, vocab) for text in case.texts]
    with ExitStack() as stack:
        compiled: dict[Name, Compiled] = {}
        for side in SIDES:
            try:
                grammar = engines.of(side).compile(sources.of(side))
            except GrammarError as error:
                raise GrammarError(f"does not compile on {side}: {error}") from None
            compiled[side] = stack.enter_context(grammar)
        slow = any(grammar.ns > _SLOW_NS for grammar in compiled.values())
        # A class may excuse what one forbids, not what it allows: each is judged by the other.
        both = [
            Pair(
                judge.judge(compiled["base"], compiled["head"], text, trace, None),
                judge.judge(compiled["head"], compiled["base"], text, trace, None),
            )
            for text, trace in zip(case.texts, traces, strict=True)
        ]
    for pair in both:
        for side in SIDES:
            if pair.of(side).outcome == "contradicts itself":
                raise UnavailableError(f"{side} contradicts itself: {pair.of(side).reason}")
    judged = [_either(pair) for pair in both]
    _, _, masks = together(judged)
    # As the head's judgement has it, so that it says what the head allows.
    first = next(
        (pair.head.masks.first for pair, j in zip(both, judged, strict=True) if j.masks.differing),
        None,
    )
    # TTFM is of the first mask: where that is not compared, nothing of the text is.
    kept = [
        one.comparable if one.comparable[:1].all() else np.zeros_like(one.comparable)
        for one in judged
    ]
    whole = [with_end(trace, vocab.eos) for trace in traces]
    steps = sum(map(len, whole))
    common = Common(
        case.name, masks.steps, masks.equal, masks.explained, masks.differing,
        max(steps - sum(int(k.sum()) for k in kept), 0),
        f"head {'allows' if first.extra else 'forbids'} {first.token!r} after {first.after!r}"
        if first else "",
        vocab=vocab.name,
    )  # fmt: skip
    return _Prepared(case, sources, whole, kept, common, slow)


def _either(pair: Pair[TextJudgement]) -> TextJudgement:
    """Return the judgement of the two that explains more of one text's masks."""
    return min(pair.head, pair.base, key=lambda judged: judged.masks.differing)


def _measure(
    one: _Prepared, engines: Pair[Vocabulary], seconds: float, number: int
) -> tuple[int, Pair[SideTimes]]:
    """Replay by both sides in turn; as compare.worker.measure, of the steps that are compared."""
    taken: Pair[tuple[list[npt.NDArray[np.uint64]], ...]] = Pair(([], [], []), ([], [], []))
    texts = [at for at, kept in enumerate(one.kept) if kept.any()]
    until = time.monotonic() + seconds
    rounds = 0
    while rounds < MAX_ROUNDS and (rounds < MIN_ROUNDS or rounds % 2 or time.monotonic() < until):
        with ExitStack() as round_:
            of_round: dict[Name, Compiled] = {}
            for at in texts:
                first = (rounds + at + number) % 2
                done: dict[Name, tuple[int, Replay]] = {}
                for side in (SIDES[first], SIDES[1 - first]):
                    with ExitStack() as stack:
                        known = of_round.get(side)
                        grammar = known or engines.of(side).compile(one.sources.of(side))
                        if known is None:
                            (round_ if one.slow else stack).enter_context(grammar)
                        if one.slow:
                            of_round[side] = grammar
                        matcher: PeerMatcher = stack.enter_context(grammar.start())
                        replayed = matcher.replay(one.traces[at])
                        done[side] = grammar.ns + matcher.ns, replayed
                    if replayed.end in (End.MASK_ERROR, End.CONSUME_ERROR):
                        raise CompareError(
                            f"{side} fails in the middle of a text: {replayed.end.name}"
                        )
                _take(taken, done, one.kept[at])
        rounds += 1
    return rounds, taken.map(lambda parts: SideTimes(*(Samples.of(part) for part in parts)))


def _take(
    taken: Pair[tuple[list[npt.NDArray[np.uint64]], ...]], done: dict[Name, tuple[int, Replay]],
    kept: Sequence[bool] | Kept,
) -> None:  # fmt: skip
    """Add a replay of each side, of the steps that both have and that are compared."""
    replays = [replayed for _, replayed in done.values()]
    masks = min(len(kept), *(len(r.op_ns) for r in replays))
    consumed = min(masks, *(len(r.consume_ns) for r in replays))
    which = np.asarray(kept, bool)
    for side, (compile_ns, replayed) in done.items():
        compiled, mask, consume = taken.of(side)
        compiled.append(np.array([compile_ns], np.uint64))
        mask.append(replayed.op_ns[:masks][which[:masks]])
        consume.append(replayed.consume_ns[:consumed][which[:consumed]])
