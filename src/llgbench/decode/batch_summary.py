"""What a batch's record says: read from it alone, refused where it is damaged, in figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

import numpy as np

from llgbench.errors import RecordError
from llgbench.records import lines, stats
from llgbench.records.entry import Entry, require_steps
from llgbench.records.lines import Count

# Of the records, below results/records.
FOLDER = "batch"

# Who computes the masks: the pool of csrc/batch.c, or llguidance's own function.
Method = Literal["pool", "llg_par_compute_mask"]
METHODS: tuple[Method, ...] = get_args(Method)

SAMPLES = ("step", "slowest", "work", "consume")
OF_DRAFTS = ("validate", "ahead", "rollback")


class _Facts(TypedDict):
    """What readers of a batch record rely on."""

    kind: Literal["batch"]
    method: str
    sequences: Count
    threads: Count
    steps: Count
    draft: Count
    cold: bool


def require(entry: Entry, where: str) -> None:
    """Refuse an entry that :func:`summarize` cannot read.

    Args:
        entry: as read from a record.
        where: the record; begins the message.

    Raises:
        RecordError: it is damaged, or not of a batch record.
    """
    where = f"{where}: {entry.configuration}"
    lines.require(entry.facts, _Facts, where)
    if entry.unavailable is not None:
        return
    names: tuple[str, ...] = ()
    if not entry.facts.get("fault"):
        names = (*SAMPLES, *(OF_DRAFTS if entry.facts["draft"] else ()))
    require_steps(entry, names, where)
    if names and not any(map(len, entry.samples.get(names[0], ()))):
        raise RecordError(f"{where} is damaged: it has no steps")


@dataclass(frozen=True)
class Summary:
    """A batch in figures; times in nanoseconds.

    Attributes:
        sequences: at once.
        threads: that computed masks.
        method: who computed them.
        steps: counted.
        p50: median time from the start of a step until its slowest mask is there.
        p99: its 99th percentile; None of too few steps.
        most: its maximum.
        mask: mean work per sequence; None where llguidance's function did it.
        busy: share of the threads' time that was work, 0 to 1; None likewise.
        consume: mean time of consume_token per sequence.
        clone: mean time of a clone; None where no text ended.
        decode: median of ``llama_decode`` for as many sequences; None where none was measured.
        late: share of the steps whose masks are later than that, 0 to 1; None likewise.
        validate: mean time to validate a draft; None without drafts, as the next two.
        ahead: mean time of the masks and tokens of a draft.
        rollback: mean time to take the refused tokens of a draft back; None where none was.
    """

    sequences: int
    threads: int
    method: str
    steps: int
    p50: float | None
    p99: float | None
    most: float | None
    mask: float | None
    busy: float | None
    consume: float
    clone: float | None
    decode: float | None
    late: float | None
    validate: float | None
    ahead: float | None
    rollback: float | None


def summarize(entry: Entry) -> Summary | None:
    """Return an entry's figures; None where nothing was timed."""
    facts = entry.facts
    if entry.unavailable is not None or facts.get("fault"):
        return None
    total = {name: float(stats.pool(arrays).sum()) for name, arrays in entry.samples.items()}
    step = stats.pool(entry.samples["step"])
    each = len(step) * facts["sequences"]
    ours = facts["method"] == METHODS[0]
    decoded = facts.get("decode")
    decode = decoded["p50_ns"] if decoded and decoded["unavailable"] is None else None
    drafts = each if facts["draft"] else 0
    return Summary(
        sequences=facts["sequences"],
        threads=facts["threads"],
        method=facts["method"],
        steps=len(step),
        p50=stats.percentile(step, 50),
        p99=stats.percentile(step, 99),
        most=stats.percentile(step, 100),
        mask=total["work"] / each if ours else None,
        busy=total["work"] / (facts["threads"] * total["step"]) if ours else None,
        consume=total["consume"] / each,
        clone=stats.mean(stats.pool(entry.samples["clone"])),
        decode=decode,
        late=float(np.mean(step > decode)) if decode is not None else None,
        validate=total["validate"] / drafts if drafts else None,
        ahead=total["ahead"] / drafts if drafts else None,
        rollback=total["rollback"] / facts["n_rollbacks"]
        if drafts and facts["n_rollbacks"] else None,
    )  # fmt: skip


def verdict(entry: Entry) -> str:
    """Return what must stand beside an entry's times, in one line."""
    if entry.unavailable is not None:
        return f"not available: {entry.unavailable}"
    label, reason = entry.verdict["label"], entry.verdict["reason"]
    found = f"{label}: {reason}" if reason else str(label)
    left_out = entry.facts.get("left_out") or {}
    return f"{found}; {len(left_out)} texts left out" if left_out else found
