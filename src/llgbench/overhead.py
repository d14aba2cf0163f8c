"""What the greedy lexeme fallback costs: off, on, and by the length of a checkpoint.

The partner of every ratio is the same engine source without the patch, or the same engine with the
option off, replayed in turn in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llgbench import case, registry, runner
from llgbench._native import ffi
from llgbench.engine import Engine, TokenArray
from llgbench.errors import UnavailableError
from llgbench.replay import Rounds, Subject, measure, replay, with_end
from llgbench.runner import Workbench
from llgbench.variant import get

# The cases in which no boundary is ever pending.
JSON_CASES = ("json-tool-call", "json-nested", "github-workflow", "large-enum")
LENGTHS = (16, 64, 65, 256, 1024, 4096, 16384)
REPLAY_ONLY = 2**64 - 1
THRESHOLD = 64
# Where llguidance may force bytes it tokenizes the whole forced run at every step, with the
# fallback or without, and that is O(n). The curve is measured where nothing is forced.
CURVE_VOCAB = "llama-spm"


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
        strategy: ``shadow``, the other reading kept in step beyond 64 bytes; ``replay``, never.
        dearest_ns: the largest over the steps of a step's median over the replays.
        median_ns: the median of the same.
        steps: of the trace.
    """

    n: int
    strategy: str
    dearest_ns: float
    median_ns: float
    steps: int


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
            subject = case.load(name)
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


def curve(
    lengths: Sequence[int] = LENGTHS,
    replays: int = 5,
    doing: Callable[[str], None] = lambda _: None,
    vocab: str = CURVE_VOCAB,
) -> Iterator[Point]:
    """Measure a checkpoint's steps by its length, with the shadow and with replay only.

    The text is ``a b{n} d``: the long match dies at its last byte. Replay only is quadratic in n,
    so it is measured up to 4096.

    Raises:
        UnavailableError: the engine is not built, or has no such parameter.
    """
    _, engine = engines()
    with Workbench(vocab) as bench:
        tokenizer = bench.tokenizer(engine, get("greedy_lexeme_fallback"))
        for n in lengths:
            subject = case.load(f"checkpoint@{n}")
            (text,) = (t for t in subject.texts if t.name == "short-match")
            trace = with_end(bench.vocab.trace(text.data), tokenizer)
            grammar = subject.lark({engine.fallback_option or "": True})
            for strategy, threshold in (("shadow", THRESHOLD), ("replay", REPLAY_ONLY)):
                if strategy == "replay" and n > 4096:
                    continue
                doing(f"{subject.name}, {strategy}")
                with _threshold(engine, threshold):
                    steps = _steps(Subject(tokenizer, grammar), trace, replays)
                medians = np.median(steps, axis=0)
                yield Point(
                    n, strategy, float(medians.max()), float(np.median(medians)), len(trace)
                )


def _steps(subject: Subject, trace: TokenArray, replays: int) -> npt.NDArray[np.uint64]:
    """Return mask + consume of each step of each replay, shape (replays, steps)."""
    rows = []
    with subject.tokenizer.matcher(subject.grammar) as matcher:
        replay(matcher, trace)  # the lexer's states are built here
        for _ in range(replays):
            rows.append(replay(matcher, trace, reset=True).tbm_ns)
    shortest = min(map(len, rows))
    return np.array([row[:shortest] for row in rows])


@contextmanager
def _threshold(engine: Engine, n: int) -> Iterator[None]:
    """Set the engine's hidden parameter for matchers made in the block; see engine/README.md."""
    address = engine.symbol("llgx_set_fallback_threshold")
    if address is None:
        raise UnavailableError(f"{engine.path} does not let its threshold be set")
    set_threshold = ffi.cast("void(*)(size_t)", address)
    set_threshold(n)
    try:
        yield
    finally:
        set_threshold(THRESHOLD)


def _round_sums(replays: Sequence[npt.NDArray[np.uint64]], rounds: int) -> list[int]:
    """Return the sum over all texts of each round; the replays of a text follow each other."""
    sums = [int(times.sum()) for times in replays]
    return [sum(sums[number::rounds]) for number in range(rounds)]


def _ratio(numerators: Sequence[int], denominators: Sequence[int]) -> float:
    pairs = zip(numerators, denominators, strict=True)
    return float(np.median([a / b for a, b in pairs if b]))
