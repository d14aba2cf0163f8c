"""What a decode entry of a record says, computed from stored data alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec

from llgbench.decode.modes import SAMPLING_FIRST
from llgbench.decode.plan import GRAMMAR_PARTS, MAX_SEQUENCES, PARTS, UNCONSTRAINED
from llgbench.records import lines
from llgbench.records.entry import Entry, require_steps
from llgbench.records.lines import Count

_SUMMED = ("wall", *PARTS, "n_committed", "n_forced", "n_missed")


class _PlanFacts(TypedDict):
    sequences: Annotated[int, msgspec.Meta(ge=1, le=MAX_SEQUENCES)]
    free: bool


class _DeviceFacts(TypedDict):
    kind: str
    name: NotRequired[str]


class _ModelFacts(TypedDict):
    label: str
    synthetic: bool
    description: str
    parameters: Count
    device: _DeviceFacts


class _Facts(TypedDict):
    """What readers of a decode record rely on; see :func:`_entry`."""

    kind: Literal["decode"]
    mode: str
    plan: _PlanFacts
    model: _ModelFacts
    threads: Count
    texts: list[dict[str, Any]]
    runs: Count
    drops: Count
    lost_at: Count | None
    checked: list[str]


def require(entry: Entry, where: str) -> None:
    """Refuse an entry that :func:`summarize` and :func:`verdict` cannot read.

    Args:
        entry: as read from a record.
        where: the record; begins the message.

    Raises:
        RecordError: it is damaged, or not of a decode record.
    """
    if entry.unavailable is not None:
        return
    where = f"{where}: {entry.configuration}"
    lines.require(entry.facts, _Facts, where)
    require_steps(entry, _SUMMED, where, judged=bool(entry.verdict))


@dataclass(frozen=True)
class Summary:
    """A decode entry in figures; times in nanoseconds.

    Attributes:
        steps: measured; forced tokens take none of their own.
        tokens: committed in them.
        per_second: tokens committed a second.
        share: of a step's time that is the grammar's, 0 to 1.
        overhead: the loop's own bookkeeping, 0 to 1.
        parts: mean time of a step by part, ``rest`` for the bookkeeping; ``mask`` is left out
            where it ran on another thread, and stands in ``hidden_mask``.
        wall: mean time of a step.
        hidden_mask: mean time of a mask on another thread.
        forced: tokens committed without a sample.
        missed: share of first samples that the grammar refused; None where none came first.
    """

    steps: int
    tokens: int
    per_second: float
    share: float
    overhead: float
    parts: dict[str, float]
    wall: float
    hidden_mask: float
    forced: int
    missed: float | None


def _median_runs(entry: Entry) -> list[int]:
    """Return for each text the run whose time a step is the median of its rounds.

    A whole run is taken, so that its tail stays in; a step is never the best of several.
    """
    walls = entry.samples["wall"]
    n_texts = 1 if entry.facts["plan"]["free"] else len(entry.facts["texts"])
    chosen = []
    for text in range(n_texts):
        runs = [i for i in range(text, len(walls), n_texts) if len(walls[i])]
        runs.sort(key=lambda i: float(walls[i].mean()))
        chosen += runs[(len(runs) - 1) // 2 : (len(runs) - 1) // 2 + 1]
    return chosen


def summarize(entry: Entry) -> Summary | None:
    """Return an entry's figures; None where nothing was measured."""
    if entry.unavailable is not None:
        return None
    chosen = _median_runs(entry)
    total = {
        name: float(sum(int(arrays[i].sum()) for i in chosen))
        for name, arrays in entry.samples.items()
        if name in _SUMMED
    }
    steps = sum(len(entry.samples["wall"][i]) for i in chosen)
    if steps == 0 or total["wall"] == 0:
        return None
    mode = entry.facts["mode"]
    seen = {name: total[name] for name in PARTS}
    hidden = seen["mask"] if mode == "overlap" else 0.0
    if mode == "overlap":
        seen["mask"] = 0.0
    rest = total["wall"] - sum(seen.values())
    sampled = total["n_committed"] - total["n_forced"]
    grammar = 0.0 if mode == UNCONSTRAINED else sum(seen[name] for name in GRAMMAR_PARTS)
    return Summary(
        steps=steps,
        tokens=int(total["n_committed"]),
        per_second=total["n_committed"] / total["wall"] * 1e9,
        share=grammar / total["wall"],
        overhead=rest / total["wall"],
        parts={**{name: t / steps for name, t in seen.items()}, "rest": rest / steps},
        wall=total["wall"] / steps,
        hidden_mask=hidden / steps,
        forced=int(total["n_forced"]),
        missed=total["n_missed"] / sampled if sampled and mode in SAMPLING_FIRST else None,
    )


def verdict(entry: Entry) -> str:
    """Return what must stand beside an entry's times, in one line."""
    if entry.unavailable is not None:
        return f"not available: {entry.unavailable}"
    if not entry.verdict:
        return ""
    facts = entry.facts
    found = []
    if facts["lost_at"] is not None:
        did = f"drops the grammar in {facts['drops']}" if facts["drops"] else "llguidance fails"
        of = facts["runs"] * facts["plan"]["sequences"]
        found.append(f"{did} of {of} sequences, at step {facts['lost_at']}")
    if facts["plan"]["free"]:
        kinds = [c.partition(" ")[0] for c in facts["checked"]]
        found += [
            f"{kinds.count(k)} {k}" for k in ("complete", "unfinished", "wrong") if k in kinds
        ]
    label, reason = entry.verdict["label"], entry.verdict["reason"]
    found.append(f"{label}: {reason}" if reason else label)
    return "; ".join(found)
