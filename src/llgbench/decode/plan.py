"""What a decode run is to do: the modes, the parts of a step, the plan."""

from __future__ import annotations

from dataclasses import dataclass

from llgbench._native import lib
from llgbench.errors import (
    InputError,
)
from llgbench.llama.sampler import Selection

# Where a step's time goes; what is left of the wall time is the loop's own bookkeeping.
PARTS = (
    "decode", "candidates", "mask", "wait", "apply", "sample", "check", "accept", "forced",
)  # fmt: skip
# What a grammar adds to a step. With a mask on another thread only the wait for it is seen.
GRAMMAR_PARTS = ("mask", "wait", "apply", "check", "accept", "forced")

UNCONSTRAINED = "unconstrained"
MAX_SEQUENCES = 32


@dataclass(frozen=True)
class Mode:
    """How mask, sample and decode follow each other.

    Attributes:
        name: as it is asked for.
        order: LB_MASK_FIRST and its fellows in csrc/llgbench.h.
        options: LB_FORCED, LB_OVERLAP.
        summary: one line for help and reports.
    """

    name: str
    order: int
    options: int
    summary: str


MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("mask-first", lib.LB_MASK_FIRST, 0, "compute the mask, apply it, sample"),
        Mode(
            "sample-first", lib.LB_SAMPLE_FIRST, 0,
            "sample, look the token up in the mask, apply it and sample again on a miss: "
            "llama.cpp's default",
        ),
        Mode(
            "validate-first", lib.LB_VALIDATE_FIRST, 0,
            "sample, validate the token, compute a mask only on a miss",
        ),
        Mode(
            "forced", lib.LB_MASK_FIRST, lib.LB_FORCED,
            "mask-first, and forced tokens are committed unsampled and decoded in one batch",
        ),
        Mode(
            "overlap", lib.LB_MASK_FIRST, lib.LB_OVERLAP,
            "mask-first, the mask computed on another thread while the model decodes",
        ),
    )
}  # fmt: skip

SAMPLING_FIRST = ("sample-first", "validate-first")


@dataclass(frozen=True)
class Plan:
    """How to run.

    Attributes:
        rounds: times each text is decoded, each with a freshly compiled grammar.
        sequences: decoded at once, all along the same text.
        selection: the chain that samples.
        free: commit what was sampled.
        agree: make the trace's token the model's choice, as a model that knows the format would.
        max_tokens: where free mode stops.
        seed: of the chain's draws.
    """

    rounds: int = 3
    sequences: int = 1
    selection: Selection = "greedy"
    free: bool = False
    agree: bool = False
    max_tokens: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what the loop cannot do."""
        if not 1 <= self.sequences <= MAX_SEQUENCES:
            raise InputError(f"sequences go from 1 to {MAX_SEQUENCES}, not {self.sequences}")
        if self.free and self.agree:
            raise InputError("--agree needs a trace to agree with, which --free has not")
