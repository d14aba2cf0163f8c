"""One process of a comparison: both engines loaded, one vocab, replays taking turns.

The masks of every step are compared before anything is timed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from llgbench.compare.facts import Difference, WorkCounter
from llgbench.compare.messages import Answer, CaseAnswer, Job, Samples, SideTimes
from llgbench.compare.side import SIDES, Name, Pair, Side
from llgbench.engines import counters
from llgbench.engines.engine import TokenArray, Tokenizer, load
from llgbench.errors import CompareError, GrammarError, UnavailableError
from llgbench.inputs import case_file
from llgbench.inputs.case import Case
from llgbench.inputs.variant import get
from llgbench.llama import bridge
from llgbench.llama.vocab import Vocab, open_vocab
from llgbench.measure import runner
from llgbench.measure.counter import Compile, Free, JobBuilder, Recorded
from llgbench.measure.counter import Replay as CountedReplay
from llgbench.measure.replay import End, Replay, replay, with_end
from llgbench.measure.rounds import Subject
from llgbench.records import stats

# A case is replayed an even number of times, so that each side goes first as often.
MIN_ROUNDS = 2
MAX_ROUNDS = 400

# Under callgrind: of each side, at most so many steps of a trace, and so many replays.
COUNTED_STEPS = 600
COUNTED_ROUNDS = 8

# A replay as it is counted: a matcher of its own for every replay of every case.
_MATCHER = 0

# How many of the differing tokens a message shows.
_SHOWN = 5


@dataclass(frozen=True)
class _Prepared:
    """A case whose masks were compared, under the name that the job has."""

    name: str
    subjects: Pair[Subject]
    traces: list[TokenArray]

    @property
    def longest(self) -> int:
        """The place of the text that is counted."""
        return max(range(len(self.traces)), key=lambda at: len(self.traces[at]))


def run(job: Job) -> Answer:
    """Verify and measure, or prepare a count.

    Raises:
        CompareError: a grammar does not compile, or a replay fails.
        UnavailableError, UnknownNameError, …: an input cannot be had.
    """
    started = time.monotonic()
    cases: dict[str, CaseAnswer] = {}
    differences: list[Difference] = []
    refused: dict[str, str] = {}
    prepared: list[_Prepared] = []
    with ExitStack() as stack:
        vocab = stack.enter_context(open_vocab(job.vocab))
        of_side = {}
        for side in SIDES if job.number % 2 == 0 else SIDES[::-1]:
            engine = load(job.sides.of(side).library)
            of_side[side] = stack.enter_context(bridge.build(engine, vocab, get(job.variant)))
        tokenizers = Pair(of_side["base"], of_side["head"])
        for name in job.cases:
            loaded = case_file.load(name)
            pair = subjects(loaded, job.sides, tokenizers)
            try:
                traces, difference, steps = compared(pair, loaded, vocab)
            except (CompareError, UnavailableError) as error:
                if job.mode != "history":
                    raise
                refused[name] = " ".join(str(error).split())
                continue
            if difference is not None:
                differences.append(replace(difference, vocab=job.vocab))
                if job.mode != "history":
                    if not job.unequal:
                        return Answer(vocab=job.vocab, cases=cases, differences=tuple(differences))
                    continue
            one = _Prepared(name, pair, traces)
            texts = tuple(text.name for text in loaded.texts)
            cases[name] = CaseAnswer(texts, steps, counted=texts[one.longest])
            prepared.append(one)
        worked: list[WorkCounter] = []
        if job.mode != "history":
            for one in prepared:
                worked += _work(one, job.vocab)
        recorded: tuple[Recorded, ...] = ()
        setup_s = time.monotonic() - started
        if job.mode == "count":
            recorded, asked = to_count(job, prepared, vocab)
            worked += asked
        if job.mode in ("time", "history"):
            for at, one in enumerate(prepared):
                left = started + setup_s + job.seconds - time.monotonic()
                least = MIN_ROUNDS
                if job.mode == "history":
                    # Enough compilations that the process carries a median of them.
                    least = max(least, -(-2 * stats.MIN_ABOVE // len(one.traces)))
                rounds, times = measure(
                    one.subjects, one.traces, left / (len(prepared) - at), job.number, least
                )
                cases[one.name] = replace(cases[one.name], rounds=rounds, times=times)
    return Answer(
        vocab=job.vocab,
        cases=cases,
        differences=tuple(differences),
        counters=tuple(worked),
        refused=refused,
        tokenizer_ns=tokenizers.map(lambda tokenizer: tokenizer.build_ns),
        setup_s=setup_s,
        wall_s=time.monotonic() - started,
        metadata=machine_metadata() if job.mode in ("time", "history") else {},
        recorded=recorded,
    )


def subjects(loaded: Case, sides: Pair[Side], tokenizers: Pair[Tokenizer]) -> Pair[Subject]:
    """Return what both sides replay of a case."""
    return Pair(
        Subject(tokenizers.base, loaded.lark(sides.base.options)),
        Subject(tokenizers.head, loaded.lark(sides.head.options)),
    )


def compared(
    pair: Pair[Subject], loaded: Case, vocab: Vocab
) -> tuple[list[TokenArray], Difference | None, int]:
    """Return the traces of a case, with the end token, and what :func:`verify` says of them.

    Raises:
        CompareError: a grammar does not compile.
        UnavailableError: the vocabulary cannot spell a text.
    """
    traces = [with_end(trace, pair.base.tokenizer) for trace in runner.traces_of(loaded, vocab)]
    return traces, *verify(pair, loaded, traces, vocab)


def verify(
    pair: Pair[Subject], loaded: Case, traces: Sequence[TokenArray], vocab: Vocab
) -> tuple[Difference | None, int]:
    """Compare the masks of every step of a case.

    Returns:
        The first difference (None where there is none), and how many masks were compared.

    Raises:
        CompareError: a grammar does not compile.
    """
    steps = 0
    for text, trace in zip(loaded.texts, traces, strict=True):
        done: dict[Name, Replay] = {}
        for side in SIDES:
            subject = pair.of(side)
            try:
                with subject.tokenizer.matcher(subject.grammar) as matcher:
                    done[side] = replay(matcher, trace, facts=True)
            except GrammarError as error:
                why = " ".join(str(error).split())[:200]
                raise CompareError(f"{loaded.name} does not compile on {side}: {why}") from None
        base, head = done["base"], done["head"]
        n = min(len(base.steps), len(head.steps))
        unequal = np.flatnonzero(base.steps["mask_hash"][:n] != head.steps["mask_hash"][:n])
        steps += n
        if len(unequal):
            at = int(unequal[0])
        elif base.end != head.end or len(base.steps) != len(head.steps):
            at = max(n - 1, 0)
        else:
            continue
        ends = Pair(base.end.name.lower(), head.end.name.lower())
        return _difference(pair, loaded.name, text.name, trace, at, ends, vocab), steps
    return None, steps


def _difference(
    pair: Pair[Subject], case_name: str, text: str, trace: TokenArray, at: int, ends: Pair[str],
    vocab: Vocab,
) -> Difference:  # fmt: skip
    def allowed_by(subject: Subject) -> set[int]:
        with subject.tokenizer.matcher(subject.grammar) as matcher:
            replay(matcher, np.ascontiguousarray(trace[:at]))
            found = matcher.allowed()
            return set() if found is None else set(found.tolist())

    pieces = vocab.table("token_to_piece").tokens
    allowed = pair.map(allowed_by)
    only = Pair(sorted(allowed.base - allowed.head), sorted(allowed.head - allowed.base))
    return Difference(
        case=case_name,
        text=text,
        step=at,
        so_far=vocab.spell(trace[:at]).decode(errors="replace")[-60:],
        next=pieces[int(trace[at])].decode(errors="replace") if at < len(trace) else "",
        allowed=allowed.map(len),
        only=only.map(
            lambda tokens: tuple((t, pieces[t].decode(errors="replace")) for t in tokens[:_SHOWN])
        ),
        n_only=only.map(len),
        end=ends,
    )


def measure(
    pair: Pair[Subject], traces: Sequence[TokenArray], seconds: float, number: int,
    least: int = MIN_ROUNDS,
) -> tuple[int, Pair[SideTimes]]:  # fmt: skip
    """Replay the traces of a case by both sides in turn, each replay on a fresh matcher.

    As often as fits into ``seconds``, but at least ``least`` times.

    Returns:
        How many rounds, and the times.

    Raises:
        CompareError: a side fails in the middle of a text.
    """
    taken = Pair(_Taken([], [], []), _Taken([], [], []))
    until = time.monotonic() + seconds
    rounds = 0
    while rounds < MAX_ROUNDS and (rounds < least or rounds % 2 or time.monotonic() < until):
        for at, trace in enumerate(traces):
            first = (rounds + at + number) % 2
            done: dict[Name, Replay] = {}
            for side in (SIDES[first], SIDES[1 - first]):
                subject = pair.of(side)
                with subject.tokenizer.matcher(subject.grammar) as matcher:
                    done[side] = replay(matcher, trace)
                    compiled = np.array([matcher.compile_ns], np.uint64)
                    taken.of(side).compile.append(compiled)
                if done[side].end in (End.MASK_ERROR, End.CONSUME_ERROR):
                    raise CompareError(
                        f"{side} fails in the middle of a text: {done[side].end.name}"
                    )
            # Where one side stops earlier (its masks differ then) only the steps of both count.
            masks = min(len(one.op_ns) for one in done.values())
            consumed = min(len(one.consume_ns) for one in done.values())
            for side, one in done.items():
                taken.of(side).mask.append(one.op_ns[:masks])
                taken.of(side).consume.append(one.consume_ns[:consumed])
        rounds += 1
    return rounds, taken.map(_Taken.packed)


@dataclass(frozen=True)
class _Taken:
    """Times of one side while they are taken."""

    compile: list[npt.NDArray[np.uint64]]
    mask: list[npt.NDArray[np.uint64]]
    consume: list[npt.NDArray[np.uint64]]

    def packed(self) -> SideTimes:
        return SideTimes(Samples.of(self.compile), Samples.of(self.mask), Samples.of(self.consume))


def to_count(
    job: Job, prepared: Sequence[_Prepared], vocab: Vocab
) -> tuple[tuple[Recorded, ...], list[WorkCounter]]:
    """Prepare what is counted: the longest trace of each case, replayed by both sides.

    Short traces are replayed several times, each on a fresh matcher: its hash maps are laid out
    anew, which moves the counts by some tenths of a percent. The dumps are named
    ``NUMBER SIDE compile``, ``… mask`` and ``… consume``, by the case's place.

    Returns:
        Two jobs, of which the second begins with the head; and, as work counters, how often the
        engines called tokenize_fn, where that differs.
    """
    recorded: list[Recorded] = []
    variant = get(job.variant)
    asked: Counter[tuple[str, Name]] = Counter()
    for number, order in enumerate((SIDES, SIDES[::-1])):
        builder = JobBuilder()
        tokenizers = {
            side: builder.tokenizer(load(job.sides.of(side).library), vocab, variant)
            for side in order
        }
        owners: dict[int, tuple[str, Name]] = {}
        for at, one in enumerate(prepared):
            trace = np.ascontiguousarray(one.traces[one.longest][:COUNTED_STEPS])
            rounds = max(2, min(COUNTED_ROUNDS, COUNTED_STEPS // len(trace)))
            for side in (order + order[::-1]) * (rounds // 2):
                begin = len(builder.steps)
                grammar = one.subjects.of(side).grammar
                builder.add(
                    Compile(_MATCHER, tokenizers[side], grammar, f"{at} {side}"),
                    CountedReplay(_MATCHER, trace, label=f"{at} {side}"),
                    Free(_MATCHER),
                )
                owners |= dict.fromkeys(range(begin, len(builder.steps)), (one.name, side))
        done = builder.record(Path(job.folder) / str(number))
        recorded.append(done)
        asked = Counter()
        for at, owner in owners.items():
            asked[owner] += done.asked[at]
    calls = [
        WorkCounter(
            one.name, "tokenize_calls", asked[one.name, "base"],
            asked[one.name, "head"], job.vocab,
        )
        for one in prepared
    ]  # fmt: skip
    return tuple(recorded), [c for c in calls if c.base != c.head]


def _work(prepared: _Prepared, vocab: str) -> list[WorkCounter]:
    """Return the work counters of a case's longest trace, where both sides count."""

    def counts(subject: Subject) -> dict[str, int] | None:
        with subject.tokenizer.matcher(subject.grammar) as matcher:
            return counters.collect(matcher, prepared.traces[prepared.longest])

    base, head = counts(prepared.subjects.base), counts(prepared.subjects.head)
    if base is None or head is None:
        return []
    return [
        WorkCounter(prepared.name, name, base[name], head[name], vocab) for name in counters.NAMES
    ]


def machine_metadata() -> dict[str, str | int | float]:
    """Return what pyperf says of this process and machine."""
    import pyperf

    found = pyperf.Run([1.0], collect_metadata=True).get_metadata()
    return {k: v for k, v in found.items() if isinstance(v, str | int | float)}
