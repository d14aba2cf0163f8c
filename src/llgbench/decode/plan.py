"""What a decode run is to do: the parts of a step, the plan."""

from __future__ import annotations

from dataclasses import dataclass

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
# llama.cpp's LLAMA_MAX_SEQ.
MAX_SEQUENCES = 256


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
