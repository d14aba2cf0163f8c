"""The modes of the decode loop. Nothing is loaded here: --help lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# What a step begins with.
Order = Literal["mask", "sample", "validate"]


@dataclass(frozen=True)
class Mode:
    """How mask, sample and decode follow each other.

    Attributes:
        name: as it is asked for.
        first: what a step begins with.
        summary: one line for help and reports.
        forced: whether forced tokens are committed unsampled.
        overlap: whether another thread computes the mask while the model decodes.
    """

    name: str
    first: Order
    summary: str
    forced: bool = False
    overlap: bool = False


MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("mask-first", "mask", "compute the mask, apply it, sample"),
        Mode(
            "sample-first", "sample",
            "sample, look it up in the mask, mask and sample again on a miss (llama.cpp's)",
        ),
        Mode(
            "validate-first", "validate",
            "sample, validate the token, compute a mask only on a miss",
        ),
        Mode(
            "forced", "mask",
            "mask-first; forced tokens are committed unsampled, decoded in one batch",
            forced=True,
        ),
        Mode(
            "overlap", "mask",
            "mask-first; the mask is computed while the model decodes",
            overlap=True,
        ),
    )
}  # fmt: skip

SAMPLING_FIRST = tuple(name for name, mode in MODES.items() if mode.first != "mask")
