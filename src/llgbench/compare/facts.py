"""What a comparison finds beside times: masks that differ, work counters, functions, steps.

Plain frozen data; all of it crosses from a worker or stands in comparison.json.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from llgbench.compare.side import Pair

Unit = Literal["ns", "instructions"]


@dataclass(frozen=True)
class Difference:
    """The first step of a case at which the masks differ, or only one side goes on.

    Attributes:
        case: its name.
        text: name of the text.
        step: its position, from 0.
        so_far: the end of the text before the step.
        next: the token of the text there; empty behind the last one.
        allowed: how many tokens each side allows.
        only: some tokens that one side alone allows, as (id, piece).
        n_only: how many there are of them.
        end: how each side's replay ended.
        vocab: its name.
    """

    case: str
    text: str
    step: int
    so_far: str
    next: str
    allowed: Pair[int]
    only: Pair[tuple[tuple[int, str], ...]]
    n_only: Pair[int]
    end: Pair[str]
    vocab: str = ""


@dataclass(frozen=True)
class Common:
    """How much of a case a ratio of two different engines is formed of.

    Attributes:
        case: its name.
        steps: masks that were compared.
        equal: of these the same.
        explained: steps whose difference a named class explains, by its name.
        differing: steps that differ beyond every class; in no ratio.
        left_out: all that are in no ratio, with those that one side alone reaches.
        first: the first that differs, in one line; empty where none does.
        refused: why the case cannot be compared at all; empty where it can.
        vocab: its name.
    """

    case: str
    steps: int = 0
    equal: int = 0
    explained: dict[str, int] = field(default_factory=dict)
    differing: int = 0
    left_out: int = 0
    first: str = ""
    refused: str = ""
    vocab: str = ""


@dataclass(frozen=True)
class WorkCounter:
    """A count of an engine's work in one case, which does not depend on the machine.

    Attributes:
        case: its name.
        counter: what is counted.
        base: on one side.
        head: on the other.
        vocab: its name.
    """

    case: str
    counter: str
    base: int
    head: int
    vocab: str = ""


@dataclass(frozen=True)
class FunctionChange:
    """A function by its own instructions, in one counted process.

    Attributes:
        function: its name.
        base: on one side.
        head: on the other.
        vocab: its name.
    """

    function: str
    base: int
    head: int
    vocab: str = ""


@dataclass(frozen=True)
class Step:
    """One of the steps that cost the head most, and where in text and grammar it is.

    Attributes:
        case: its case.
        vocab: its vocab.
        text: name of the text.
        step: its position, from 0.
        base: TBM there, the median over replays, then over processes.
        head: the same.
        unit: of both.
        so_far: the end of the text before the step.
        token: the text's token there; empty behind the last one.
        allowed: how many tokens the mask allows; None where the step was not explained.
        expects: the bytes that allowed tokens begin with, such as ``"0-9`` in order.
        accepting: whether the text may end there.
    """

    case: str
    vocab: str
    text: str
    step: int
    base: float
    head: float
    unit: Unit = "ns"
    so_far: str = ""
    token: str = ""
    allowed: int | None = None
    expects: str = ""
    accepting: bool = False

    @property
    def kind(self) -> str:
        """The kind of mask, by how many tokens it allows."""
        if self.allowed is None:
            return ""
        if self.allowed == 1:
            return "forced (1 token)"
        size = "narrow" if self.allowed < 100 else "middling" if self.allowed < 10_000 else "wide"
        return f"{size} ({self.allowed:,} tokens)"
