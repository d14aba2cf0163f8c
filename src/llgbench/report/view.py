"""A record's entries, indexed the way tables and pictures need them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from llgbench.errors import RecordError
from llgbench.inputs.variant import VARIANTS
from llgbench.records import stats, times
from llgbench.records.entry import Entry
from llgbench.records.packed import Arrays, Times
from llgbench.records.record import Record
from llgbench.records.times import Kind, Measure
from llgbench.shown import visible

BASELINE = "baseline"


@dataclass(frozen=True)
class Column:
    """A variant on an engine: one column of a table, one line of a picture."""

    variant: str
    engine: str = "default"

    @property
    def label(self) -> str:
        """The variant's name, with the engine's where that was asked for by name."""
        if self.engine == "default":
            return self.variant
        return visible(f"{self.variant} on {self.engine}")


class View:
    """A record's entries, indexed the way tables need them."""

    def __init__(self, record: Record) -> None:
        """Index a record.

        Raises:
            RecordError: nothing was measured in it.
        """
        if any(entry.kind for entry in record.entries):
            raise RecordError(
                f"{record.path}: not a record of llgbench run; give the folder of results instead, "
                "whose newest decode record is in the report"
            )
        self.record = record
        self.entries = {entry.configuration: entry for entry in record.entries}
        self.measured = [e for e in self.entries.values() if e.unavailable is None]
        if not self.measured:
            why = next((e.unavailable for e in self.entries.values()), None)
            reason = f" (not available: {why})" if why else ""
            raise RecordError(f"{record.path}: nothing was measured{reason}; run: llgbench run")
        # Where a vocab was not there, its entries know nothing of their cases; others may.
        known = [e for e in self.entries.values() if e.facts]
        self._tags = {e.configuration.case: e.facts.get("tags", []) for e in known}
        self._values = {e.configuration.case: e.facts.get("value") for e in known}
        self._by_place: dict[tuple[str, str, Column], Entry] = {
            (c.case, c.vocab, Column(c.variant, c.engine)): entry
            for c, entry in self.entries.items()
        }
        self._replays: dict[tuple[int, Kind, Measure], Arrays] = {}

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """All of the record, in the variants' order."""
        found = dict.fromkeys(Column(c.variant, c.engine) for c in self.entries)
        order = list(VARIANTS)
        return tuple(
            sorted(
                found,
                key=lambda c: order.index(c.variant) if c.variant in order else len(order),
            )
        )

    @cached_property
    def baseline(self) -> Column | None:
        """What the others are compared with: the baseline on its own engine before any other."""
        found = [column for column in self.columns if column.variant == BASELINE]
        return min(found, key=lambda column: column.engine != "default", default=None)

    @cached_property
    def vocabs(self) -> tuple[str, ...]:
        """In the order of the record."""
        return tuple(dict.fromkeys(c.vocab for c in self.entries))

    def group(self, case: str) -> str:
        """Return the set of cases that a case is pooled in, empty where in none."""
        return times.pool_of(self._tags.get(case, []))

    def value(self, case: str) -> int | None:
        """Return the parameter of a member of a family."""
        return self._values.get(case)

    def cases(self, vocab: str, group: str | None = None) -> list[str]:
        """Return the cases run on a vocab, of one set where it is given."""
        found = dict.fromkeys(c.case for c in self.entries if c.vocab == vocab)
        return [case for case in found if group is None or self.group(case) == group]

    def groups(self, vocab: str) -> list[str]:
        """Return the sets of cases that were measured on a vocab."""
        found = {self.group(case) for case in self.cases(vocab)}
        return [name for name in times.POOLS.values() if name in found]

    def entry(self, case: str, vocab: str, column: Column) -> Entry | None:
        """Return an entry, None where the record has none there."""
        return self._by_place.get((case, vocab, column))

    def labels(self, vocab: str, group: str, column: Column) -> Counter[str]:
        """Count the verdicts of a set's cases; ``not available`` is counted too."""
        entries = (self.entry(case, vocab, column) for case in self.cases(vocab, group))
        return Counter(times.label(entry) for entry in entries if entry is not None)

    def pooled(self, vocab: str, group: str, column: Column) -> list[Entry]:
        """Return the entries that a pooled column pools: those whose masks are right."""
        entries = (self.entry(case, vocab, column) for case in self.cases(vocab, group))
        return [entry for entry in entries if entry is not None and times.masks_right(entry)]

    def pairs(self, entries: Iterable[Entry], column: Column) -> list[tuple[Entry, Entry]]:
        """Return each entry of a column with the baseline's, where both have right masks."""
        if self.baseline is None or column == self.baseline:
            return []
        found = []
        for entry in entries:
            c = entry.configuration
            other = self.entry(c.case, c.vocab, self.baseline)
            if other is not None and times.masks_right(entry) and times.masks_right(other):
                found.append((entry, other))
        return found

    def replays(self, entry: Entry, kind: Kind, measure: Measure) -> Arrays:
        """Return an entry's times, one array per replay, nanoseconds."""
        key = (id(entry), kind, measure)
        if key not in self._replays:
            self._replays[key] = times.replays(entry, kind, measure)
        return self._replays[key]

    def times(self, entries: Iterable[Entry], kind: Kind, measure: Measure) -> Times:
        """Return the times of several entries, pooled and sorted, nanoseconds."""
        return pooled(array for e in entries for array in self.replays(e, kind, measure))


def pooled(arrays: Iterable[Times]) -> Times:
    """Return replays pooled and sorted: percentiles are then quick, and the order never matters."""
    return np.sort(stats.pool(arrays))
