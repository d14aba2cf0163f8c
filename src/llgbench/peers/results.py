"""What is found of an engine on a case: plain data, as it crosses processes and is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import msgspec

# What becomes of a case. After `measured` come the ways in which there is nothing to measure.
Outcome = Literal[
    "right", "refuses valid", "accepts invalid", "another reading", "contradicts itself",
    "not judged", "does not compile", "over its time", "over its memory", "crashed",
    "not available",
]  # fmt: skip
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True)
class Difference:
    """Where the masks of an engine and the reference first differ beyond every named class.

    Attributes:
        text: the text's name.
        step: which of its steps.
        after: the text's last bytes before it.
        token: the bytes of the first such token.
        extra: whether the engine allows it; else it forbids it.
        n_extra: tokens that the engine allows there and the reference does not.
        n_missing: tokens that it forbids there and the reference allows.
    """

    text: str
    step: int
    after: bytes
    token: bytes
    extra: bool
    n_extra: int
    n_missing: int


@dataclass(frozen=True)
class Masks:
    """The masks of a case beside the exact reference's.

    Attributes:
        steps: masks compared.
        equal: of these the same.
        explained: steps whose difference a class explains, by its name; a step counts for each.
        differing: steps that differ beyond every class.
        first: the first of these.
    """

    steps: int = 0
    equal: int = 0
    explained: dict[str, int] = field(default_factory=dict)
    differing: int = 0
    first: Difference | None = None

    def __str__(self) -> str:
        if not self.steps:
            return "not judged"
        named = ", ".join(f"{name} {n}" for name, n in sorted(self.explained.items()))
        if self.differing:
            return f"differ in {self.differing} of {self.steps}" + (f"; {named}" if named else "")
        return "equal" + (f" but for {named}" if named else "")


@dataclass(frozen=True)
class Samples:
    """Raw times of an engine, in nanoseconds, the steps of all texts in order.

    Attributes:
        compile_ns: one per compilation, the making of a matcher included.
        first_mask_ns: the first mask of each fresh matcher.
        cold_mask_ns: masks of the first replay on a grammar that was just compiled.
        cold_accept_ns: accepts in the same.
        warm_mask_ns: masks of a second replay of the same text by the same matcher.
        warm_accept_ns: accepts in the same.
        sibling_mask_ns: masks of another text's matcher on the same compiled grammar.
        sibling_accept_ns: accepts in the same.
        head_mask_ns: of the cold ones those of each text's first tenth, of texts with 100 steps.
        tail_mask_ns: those of its last tenth.
    """

    compile_ns: list[int] = field(default_factory=list)
    first_mask_ns: list[int] = field(default_factory=list)
    cold_mask_ns: list[int] = field(default_factory=list)
    cold_accept_ns: list[int] = field(default_factory=list)
    warm_mask_ns: list[int] = field(default_factory=list)
    warm_accept_ns: list[int] = field(default_factory=list)
    sibling_mask_ns: list[int] = field(default_factory=list)
    sibling_accept_ns: list[int] = field(default_factory=list)
    head_mask_ns: list[int] = field(default_factory=list)
    tail_mask_ns: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Pairs:
    """Times of the steps that may be compared: both engines in turn, on masks that are as good.

    Attributes:
        engine_ns: the engine's masks, cold.
        base_ns: llguidance's at the same steps.
        engine_warm_ns: the engine's masks of a second replay.
        base_warm_ns: llguidance's.
        left_out: the engine's masks at steps that differ, or that llguidance does not reach; they
            are in no ratio.
    """

    engine_ns: list[int] = field(default_factory=list)
    base_ns: list[int] = field(default_factory=list)
    engine_warm_ns: list[int] = field(default_factory=list)
    base_warm_ns: list[int] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class CaseResult:
    """One engine on one case and vocabulary.

    Attributes:
        case: its name.
        vocab: the vocabulary's.
        engine: as it was asked for.
        white_space: of the configuration; ``–`` where the grammar has its own.
        outcome: what became of it.
        reason: one line; empty where right.
        release: of what the engine is.
        reference: what its masks were judged by.
        masks: beside the reference's.
        tried: tokens of its masks that the engine was asked to accept, beside the texts' own.
        vocabulary_ns: to hand over the vocabulary.
        memory_bytes: what the compiled grammar takes on the heap; None where that is not known.
        matcher_bytes: what one more matcher of it takes there, at the end of the longest text; None
            as above, or where nothing was timed.
        samples: the engine's times; None where only the verdict was asked for.
        base: llguidance's, in the same process, in turn with them.
        pairs: what a ratio is formed of.
        seconds: that it took.
        cpu_s: CPU time of the processes that found this.
        inside_s: of these inside the engines; 0 where it did not come to its end, or was timed.
    """

    case: str
    vocab: str
    engine: str
    white_space: str
    outcome: Outcome
    reason: str = ""
    release: str = ""
    reference: str = ""
    masks: Masks = field(default_factory=Masks)
    tried: int = 0
    vocabulary_ns: int = 0
    memory_bytes: int | None = None
    matcher_bytes: int | None = None
    samples: Samples | None = None
    base: Samples | None = None
    pairs: Pairs | None = None
    seconds: float = 0.0
    cpu_s: float = 0.0
    inside_s: float = 0.0


@dataclass(frozen=True)
class Adapter:
    """What the adapter of an engine costs by itself: a step with nothing to do.

    Attributes:
        engine: its specification.
        release: what it is.
        read_ns: what the clocks read in such a step.
        wall_ns: what it takes in all.
        instructions: how many it executes, bookkeeping included; NaN where they cannot be counted.
    """

    engine: str
    release: str
    read_ns: float
    wall_ns: float
    instructions: float

    @property
    def limit_ns(self) -> float:
        """What the clocks may read, for an engine that takes microseconds: the suite's goal."""
        return 80.0 if self.engine.startswith("xgrammar") else 60.0


@dataclass(frozen=True)
class Found:
    """What a comparison found: one result per engine, vocabulary, white space and case.

    Attributes:
        adapters: one per engine.
        results: in the order they were found.
        about: where and with what, as measure.provenance has it.
    """

    adapters: tuple[Adapter, ...]
    results: tuple[CaseResult, ...]
    about: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data; bytes of tokens as base64."""
        return dict(msgspec.to_builtins(self))
