"""Answers of a comparison's processes, made up: fixed times, so that what follows is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from llgbench.compare.messages import Answer, CaseAnswer, Samples, SideTimes
from llgbench.compare.side import Pair

Times = npt.NDArray[np.uint64]


def times(replays: Sequence[Times], compile_ns: float = 1000, consume_ns: float = 100) -> SideTimes:
    """One side: its masks as given, compilation and consumption always the same."""
    return SideTimes(
        compile=Samples.of([np.array([compile_ns], np.uint64)] * len(replays)),
        mask=Samples.of(replays),
        consume=Samples.of([np.full(len(r), consume_ns, np.uint64) for r in replays]),
    )


def side(mask_ns: float, steps: int = 50, rounds: int = 4) -> SideTimes:
    """One side whose masks all cost the same."""
    return times([np.full(steps, int(mask_ns), np.uint64)] * rounds)


def answer(
    base: SideTimes,
    head: SideTimes,
    cases: Sequence[str] = ("a", "b"),
    vocab: str = "v",
    texts: tuple[str, ...] = ("t",),
    steps: int = 50,
    tokenizer_ns: Pair[int] | None = None,
) -> Answer:
    """One process, with the same times in every case."""
    one = CaseAnswer(texts, steps, rounds=4, times=Pair(base, head), counted=texts[0])
    return Answer(
        vocab=vocab,
        cases=dict.fromkeys(cases, one),
        setup_s=1.0,
        tokenizer_ns=tokenizer_ns,
    )
