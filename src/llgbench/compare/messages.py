"""What a process of a comparison is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from llgbench.compare.facts import Difference, WorkCounter
from llgbench.compare.side import Pair, Side
from llgbench.measure.counter import Recorded

Mode = Literal["time", "verify", "count", "history"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one process does.

    Attributes:
        base: one side.
        head: the other.
        vocab: on which vocabulary.
        cases: by name.
        variant: which bridge both sides get.
        number: of the process, from 0; every other one loads the head first.
        seconds: how long to measure, shared by the cases; each gets worker.MIN_ROUNDS in any event.
        unequal: whether to continue with the other cases where the masks of one differ.
        mode: verify masks and ``time``; ``verify`` alone; ``count``, verify and prepare what is
            counted under callgrind; or ``history``, which times what differs too, since a commit
            may be there to change masks, and goes on where a case cannot be measured.
        folder: where ``count`` puts its files.
    """

    base: Side
    head: Side
    vocab: str
    cases: tuple[str, ...]
    variant: str
    number: int = 0
    seconds: float = 0.0
    unequal: bool = False
    mode: Mode = "time"
    folder: str = ""

    @property
    def sides(self) -> Pair[Side]:
        """Both sides."""
        return Pair(self.base, self.head)


@dataclass(frozen=True)
class Samples:
    """Arrays of times as bytes.

    Attributes:
        lengths: of each array.
        data: all values one after another, uint64, nanoseconds.
    """

    lengths: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, arrays: Sequence[npt.NDArray[np.uint64]]) -> Samples:
        """Join arrays."""
        joined = np.concatenate([*arrays, np.empty(0, np.uint64)]).astype(np.uint64)
        return cls(tuple(map(len, arrays)), joined.tobytes())

    @property
    def arrays(self) -> list[npt.NDArray[np.uint64]]:
        """The arrays."""
        joined = np.frombuffer(self.data, np.uint64)
        return np.split(joined, np.cumsum(self.lengths)[:-1]) if self.lengths else []


@dataclass(frozen=True)
class SideTimes:
    """Times of one side in a case, one array per replay; a round's replays go text by text.

    Attributes:
        compile: one value per replay.
        mask: one value per step.
        consume: the same; one less where the text ends by rejection.
    """

    compile: Samples
    mask: Samples
    consume: Samples


@dataclass(frozen=True)
class CaseAnswer:
    """What a process found of one case.

    Attributes:
        texts: names of its texts.
        steps: masks compared.
        rounds: how often every text was replayed by each side.
        times: of both sides; None where none was timed.
        counted: name of the text that is counted.
    """

    texts: tuple[str, ...]
    steps: int
    rounds: int = 0
    times: Pair[SideTimes] | None = None
    counted: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a process found.

    Attributes:
        vocab: on which vocabulary.
        cases: by name; without those whose masks differ, unless the mode times them too.
        differences: of masks.
        counters: of the engines' work; empty where they export none.
        refused: why cases could not be measured, by name; in ``history`` alone.
        tokenizer_ns: what building the tokenizers took.
        setup_s: what came before the measurement.
        wall_s: all of it.
        metadata: pyperf's, of process and machine.
        recorded: what is counted, as two jobs, of which the second begins with the head.
    """

    vocab: str
    cases: dict[str, CaseAnswer]
    differences: tuple[Difference, ...] = ()
    counters: tuple[WorkCounter, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    tokenizer_ns: Pair[int] | None = None
    setup_s: float = 0.0
    wall_s: float = 0.0
    metadata: dict[str, str | int | float] = field(default_factory=dict)
    recorded: tuple[Recorded, ...] = ()
