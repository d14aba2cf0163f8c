"""Two records of one machine: what became slower from one sitting to the next."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from llgbench.asv.alert import Alert
from llgbench.asv.levels import UNKNOWN_SPREAD
from llgbench.inputs.configuration import Configuration
from llgbench.records import stats, times
from llgbench.records.entry import Entry
from llgbench.records.record import Record
from llgbench.records.times import Measure

# An alert less sure than this is none; two records have dozens of values to be wrong in.
MIN_CONFIDENCE = 0.99

_MEASURES: tuple[Measure, ...] = ("mask", "consume")


def compare(recorded: Iterable[Record], threshold: float) -> list[Alert]:
    """Compare each machine's newest record with the one before it of the same inputs.

    Cold masks and consume_token by their median over rounds; a step counts where every
    round of the newer lies above every round of the older. Two records are two sittings, and the
    machine may be another in each. What ran on the very same engine in both tells how much: by how
    it changed in the middle the older times are corrected, and how far its changes lie apart is
    the error of one. Only what ran on another engine can be an alert.
    """
    by_machine: dict[str, list[Record]] = {}
    for record in recorded:
        if record.complete:
            by_machine.setdefault(_machine(record), []).append(record)
    found: list[Alert] = []
    for machine, of_machine in by_machine.items():
        if len(of_machine) >= 2:
            found += _between(machine, of_machine[-2], of_machine[-1], threshold)
    return found


def _between(machine: str, old: Record, new: Record, threshold: float) -> Iterator[Alert]:
    earlier = {e.configuration: e for e in old.entries if e.unavailable is None}
    pairs = [
        (earlier[entry.configuration], entry)
        for entry in new.entries
        if entry.unavailable is None and entry.configuration in earlier
    ]
    pairs = [pair for pair in pairs if _same_inputs(*pair)]
    for measure, q in itertools.product(_MEASURES, (50.0, 99.0)):
        found = (_Change.of(*pair, measure, q) for pair in pairs)
        changes = [change for change in found if change is not None]
        drift, error = _drift([change for change in changes if change.same_engine])
        for change in changes:
            beyond = change.size - drift
            if change.same_engine or not change.apart or beyond <= math.log1p(threshold):
                continue
            confidence = _below(beyond / error if error else math.inf)
            if confidence >= MIN_CONFIDENCE:
                yield Alert(
                    source="records", machine=machine, environment="", branch="",
                    benchmark=f"cold_{measure} p{q:g}", parameters=str(change.configuration),
                    before=old.path.stem,
                    after=new.path.stem,
                    old=change.was * math.exp(drift),
                    new=change.now,
                    unit="ns",
                    since=new.path.stem,
                )  # fmt: skip


@dataclass(frozen=True)
class _Change:
    """What became of a percentile between two records, in nanoseconds."""

    configuration: Configuration
    was: float
    now: float
    apart: bool
    same_engine: bool

    @property
    def size(self) -> float:
        """The logarithm of the ratio."""
        return math.log(self.now / self.was)

    @classmethod
    def of(cls, before: Entry, after: Entry, measure: Measure, q: float) -> _Change | None:
        """Return the change of an entry; None where its samples cannot carry the percentile."""
        rounds = (times.pooled_rounds([entry], "cold", measure) for entry in (before, after))
        was, now = (stats.block_percentiles(of_entry, q) for of_entry in rounds)
        if len(was) < 2 or len(now) < 2 or min(*was, *now) <= 0:
            return None
        return cls(
            after.configuration, float(np.median(was)), float(np.median(now)),
            min(now) > max(was), before.engine.get("sha256") == after.engine.get("sha256"),
        )  # fmt: skip


def _drift(unchanged: Sequence[_Change]) -> tuple[float, float]:
    """Return how the machine changed, as a logarithm, and the standard error of a change."""
    if len(unchanged) < 3:
        return 0.0, math.sqrt(2) * UNKNOWN_SPREAD
    sizes = [change.size for change in unchanged]
    return float(np.median(sizes)), float(np.std(sizes, ddof=1)) * math.sqrt(1 + 1 / len(sizes))


def _below(distance: float) -> float:
    """Return how much of a normal distribution lies below a distance in standard errors."""
    return 0.5 * (1 + math.erf(distance / math.sqrt(2)))


def _same_inputs(a: Entry, b: Entry) -> bool:
    keys = ("case_digest", "vocab_sha256")
    return all(a.facts.get(key) == b.facts.get(key) for key in keys)


def _machine(record: Record) -> str:
    machine = record.provenance.get("machine", {})
    return f"{machine.get('cpu')}, {machine.get('cores')} cores"
