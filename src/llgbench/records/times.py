"""What the times of a record mean; mask, consume, TBM, TTFM, a round and "right" are defined here.

Reports, ASV, comparisons and the table of a run take them from here, so that one word is one number
everywhere. Pure: arrays of nanoseconds go in and out; counts of instructions are as good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from llgbench.records import stats
from llgbench.records.entry import Entry
from llgbench.records.packed import Arrays, Times

# How a matcher came to a step: fresh, after a reset, as a clone; ``cached`` asks for a mask again.
Kind = Literal["cold", "warm", "sibling", "cached"]
Measure = Literal["tbm", "ttfm", "compile", "first_mask", "mask", "consume"]

# What there is of every step, and what of every cold replay.
STEPS: tuple[tuple[Kind, Measure], ...] = (
    ("cold", "tbm"), ("cold", "mask"), ("cold", "consume"),
    ("warm", "tbm"), ("warm", "mask"), ("warm", "consume"),
    ("sibling", "tbm"), ("sibling", "mask"), ("sibling", "consume"),
    ("cached", "mask"),
)  # fmt: skip
STARTS: tuple[Measure, ...] = ("compile", "first_mask", "ttfm")

# Verdicts under which every mask that was judged is right: ``limited`` ones are what the lexer can
# know, and a ``refused`` text is not in the grammar. Only their times are pooled and compared.
SOUND = frozenset({"right", "limited", "refused"})

NOT_AVAILABLE = "not available"

# Cases that are pooled with each other, by tag; the first tag that a case has decides.
POOLS = {"maskbench": "MaskBench files", "json": "JSON cases"}


def label(entry: Entry) -> str:
    """Return the verdict in a word; ``not available`` where nothing was measured."""
    return NOT_AVAILABLE if entry.unavailable is not None else str(entry.verdict.get("label", ""))


def masks_right(entry: Entry) -> bool:
    """Return whether an entry was measured and no mask of it is wrong; see SOUND."""
    return label(entry) in SOUND


def pool_of(tags: Sequence[str]) -> str:
    """Return the set of cases that a case with these tags is pooled in, empty where in none."""
    return next((name for tag, name in POOLS.items() if tag in tags), "")


def tbm(mask: npt.NDArray[Any], consume: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the time between masks of each step: its mask and its consume_token.

    A text that ends by rejection has one mask more than tokens consumed: only steps that have both
    count.

    Args:
        mask: shape (…, steps).
        consume: shape (…, ≤ steps).
    """
    steps: npt.NDArray[Any] = mask[..., : consume.shape[-1]] + consume
    return steps


def tbms(masks: Sequence[Times], consumes: Sequence[Times]) -> Arrays:
    """Return :func:`tbm` of each replay."""
    return [tbm(mask, consume) for mask, consume in zip(masks, consumes, strict=True)]


def ttfms(compiled: Sequence[Times], masks: Sequence[Times]) -> Arrays:
    """Return the time to first mask of each replay: its compilation and its own first mask.

    Args:
        compiled: of each replay, shape (1,).
        masks: of each replay, shape (steps,).

    Returns:
        Of each replay, shape (1,); empty where it had no mask.
    """
    # Broadcasting with an empty array gives an empty one: no first mask, no TTFM.
    return [start[:1] + mask[:1] for start, mask in zip(compiled, masks, strict=True)]


def replays(entry: Entry, kind: Kind, measure: Measure) -> Arrays:
    """Return one measure of an entry, one array per replay, nanoseconds.

    Compilation, and so TTFM, is of cold replays alone. An old record has no siblings.
    """
    samples = entry.samples
    masks, consumes = samples.get(f"{kind}_mask", []), samples.get(f"{kind}_consume", [])
    match measure:
        case "mask":
            return list(masks)
        case "consume":
            return list(consumes)
        case "tbm":
            return tbms(masks, consumes)
        case "first_mask":
            return [mask[:1] for mask in masks]
    joined = stats.pool(samples.get("compile", [])) if kind == "cold" else np.empty(0, np.uint64)
    compiled = [joined[at : at + 1] for at in range(len(joined))]
    return compiled if measure == "compile" else ttfms(compiled, masks)


def pooled(entry: Entry, kind: Kind, measure: Measure) -> Times:
    """Return one measure of all replays of an entry, nanoseconds."""
    return stats.pool(replays(entry, kind, measure))


def rounds(arrays: Sequence[Times], size: int) -> list[Arrays]:
    """Return replays round by round; a round is ``size`` replays that follow each other."""
    return [list(arrays[start : start + size]) for start in range(0, len(arrays), size)]


def by_round(entry: Entry, arrays: Sequence[Times]) -> list[Arrays]:
    """Return one of an entry's samples round by round; in one piece where rounds are unequal.

    The runner goes round by round, and replays every text equally often in each, so every round
    is a measurement of the same steps.
    """
    texts = len(entry.facts.get("texts", []))
    cold = len(entry.samples.get("cold_mask", []))
    if not texts or not arrays or cold % texts or len(arrays) % cold:
        return [list(arrays)]
    return rounds(arrays, len(arrays) // (cold // texts))


def pooled_rounds(entries: Sequence[Entry], kind: Kind, measure: Measure) -> Arrays:
    """Return all steps of each round, pooled over entries that were measured together.

    A round has every text of every case once, so that rounds differ by noise alone. One array
    where the entries have no common number of rounds.
    """
    of_entries = [by_round(entry, replays(entry, kind, measure)) for entry in entries]
    count = min(map(len, of_entries), default=0)
    if count <= 1:
        return [stats.pool(a for parts in of_entries for part in parts for a in part)]
    return [
        stats.pool(array for parts in of_entries for array in parts[number])
        for number in range(count)
    ]
