"""What the greedy lexeme fallback costs: off, on, and by the length of a checkpoint.

The partner of every ratio is the same engine source without the patch, or the same engine with the
option off, replayed in turn in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llgbench._native import lib
from llgbench.engines import registry
from llgbench.engines.engine import Engine, Matcher, TokenArray
from llgbench.errors import CompareError
from llgbench.fallback.pending import STATES, Reading
from llgbench.fallback.states import (
    CHECKPOINT_VOCAB,
    LENGTHS,
    Strategy,
    checkpoint,
    dropper,
    matchers_of,
    points,
)
from llgbench.inputs import case_file
from llgbench.inputs.variant import get
from llgbench.measure import runner
from llgbench.measure.replay import replay, with_end
from llgbench.measure.rounds import Rounds, Subject, measure
from llgbench.measure.runner import Workbench

# The cases in which no boundary is ever pending.
JSON_CASES = ("json-tool-call", "json-nested", "github-workflow", "large-enum")

# Bytes; the caches of one core, and its share of what it has in common with others, hold less.
_MORE_THAN_CACHES = 64 << 20


@dataclass(frozen=True)
class Overhead:
    """One case's times over its partner's, as ratios: the median of the rounds.

    Attributes:
        off_mask: option off over stock, all warm masks of a round.
        off_consume: the same for consume_token.
        on_mask: option on over option off.
        on_consume: the same for consume_token.
    """

    case: str
    vocab: str
    off_mask: float
    off_consume: float
    on_mask: float
    on_consume: float


@dataclass(frozen=True)
class Point:
    """One length of the checkpoint's curve.

    Attributes:
        n: bytes for which the terminal stays open.
        strategy: ``shadow``, the other reading kept as a level beyond 64 bytes; ``replay``, never.
        costliest_ns: the largest over the steps of a step's median over the replays.
        emptied_ns: the median of that step, the processor's caches emptied before it. What it is
            made of is used once a replay, so that without this it is the colder the longer n.
        median_ns: of the steps' medians, the median.
        steps: of the trace.
    """

    n: int
    strategy: Strategy
    costliest_ns: float
    emptied_ns: float
    median_ns: float
    steps: int


@dataclass(frozen=True)
class PendingTime:
    """The best times of one state's masks, the mask cache dropped before each, in nanoseconds.

    Attributes:
        state: its name, see pending.STATES.
        both_ns: a boundary pending.
        longer_ns: the same text where the terminal cannot have ended at the boundary.
        other_ns: the same where it must have.
    """

    state: str
    vocab: str
    both_ns: int
    longer_ns: int
    other_ns: int

    @property
    def over_costlier(self) -> float:
        """The pending mask over the costlier of its two readings alone."""
        return self.both_ns / max(self.longer_ns, self.other_ns)


def engines() -> tuple[Engine, Engine]:
    """Return the stock build and the one with the fallback.

    Raises:
        UnavailableError: one of them is not built.
    """
    return registry.get(registry.STOCK), registry.get(registry.FALLBACK)


def on_json(vocab: str, rounds: int = 12, cases: Sequence[str] = JSON_CASES) -> Iterator[Overhead]:
    """Measure what the option costs where no boundary is ever pending.

    Raises:
        UnavailableError: an engine is not built.
    """
    stock, fallback = engines()
    plain = get("greedy_tokenize")
    with Workbench(vocab) as bench:
        on_stock = bench.tokenizer(stock, plain)
        on_fallback = bench.tokenizer(fallback, plain)
        for name in cases:
            subject = case_file.load(name)
            subjects = {
                "stock": Subject(on_stock, subject.lark()),
                "off": Subject(on_fallback, subject.lark()),
                "on": Subject(on_fallback, subject.lark({fallback.fallback_option or "": True})),
            }
            traces = [with_end(trace, on_stock) for trace in runner.traces_of(subject, bench.vocab)]
            samples = measure(subjects, traces, Rounds(cold=1, warm=rounds, cached=0))
            masks = {key: _round_sums(s.warm_mask_ns, rounds) for key, s in samples.items()}
            consumes = {key: _round_sums(s.warm_consume_ns, rounds) for key, s in samples.items()}
            yield Overhead(
                name,
                vocab,
                _ratio(masks["off"], masks["stock"]),
                _ratio(consumes["off"], consumes["stock"]),
                _ratio(masks["on"], masks["off"]),
                _ratio(consumes["on"], consumes["off"]),
            )


def pending(vocab: str, rounds: int = 200) -> Iterator[PendingTime]:
    """Time the masks of states with a boundary pending, and without one, in turn.

    Raises:
        UnavailableError: an engine is not built.
        CompareError: a mask fails.
    """
    _, engine = engines()
    drop = dropper(engine)
    with Workbench(vocab) as bench:
        for state in STATES:
            with ExitStack() as stack:
                matchers = matchers_of(state, engine, bench, stack)
                best: dict[Reading, int] = {}
                for _ in range(rounds):
                    for reading, matcher in matchers.items():
                        ns = int(lib.lb_timed_mask(engine.api, matcher.pointer, drop))
                        best[reading] = min(best.get(reading, ns), ns)
            if max(best.values()) == 2**64 - 1:
                raise CompareError(f"a mask of {state.name} fails")
            yield PendingTime(state.name, vocab, best["both"], best["longer"], best["other"])


def curve(
    lengths: Sequence[int] = LENGTHS,
    replays: int = 5,
    doing: Callable[[str], None] = lambda _: None,
    vocab: str = CHECKPOINT_VOCAB,
) -> Iterator[Point]:
    """Measure a checkpoint's steps by its length, with a level and with replay only.

    Raises:
        UnavailableError: the engine is not built, or has no such parameter.
    """
    _, engine = engines()
    with Workbench(vocab) as bench:
        for n, strategy in points(lengths):
            doing(f"checkpoint@{n}, {strategy}")
            matcher, trace = checkpoint(n, strategy, engine, bench)
            with matcher:
                medians = np.median(_steps(matcher, trace, replays), axis=0)
                emptied = _from_memory(matcher, trace, int(medians.argmax()), replays)
            yield Point(
                n, strategy, float(medians.max()), emptied, float(np.median(medians)), len(trace)
            )


def _steps(matcher: Matcher, trace: TokenArray, replays: int) -> npt.NDArray[np.uint64]:
    """Return mask + consume of each step of each replay, shape (replays, steps)."""
    replay(matcher, trace)  # the lexer's states are built here
    rows = [replay(matcher, trace, reset=True).tbm_ns for _ in range(replays)]
    shortest = min(map(len, rows))
    return np.array([row[:shortest] for row in rows])


def _from_memory(matcher: Matcher, trace: TokenArray, at: int, replays: int) -> float:
    """Return the median of mask + consume of one step that finds nothing in the caches, in ns."""
    evicted = np.zeros(_MORE_THAN_CACHES, np.uint8)
    found = []
    for number in range(replays):
        replay(matcher, trace[:at], reset=True)
        evicted.fill(number)
        found.append(int(replay(matcher, trace[at : at + 1]).tbm_ns[0]))
    return float(np.median(found))


def _round_sums(replays: Sequence[npt.NDArray[np.uint64]], rounds: int) -> list[int]:
    """Return the sum over all texts of each round; the replays of a text follow each other."""
    sums = [int(times.sum()) for times in replays]
    return [sum(sums[number::rounds]) for number in range(rounds)]


def _ratio(numerators: Sequence[int], denominators: Sequence[int]) -> float:
    pairs = zip(numerators, denominators, strict=True)
    return float(np.median([a / b for a, b in pairs if b]))
