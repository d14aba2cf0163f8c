"""A record as a long-form frame: one row a figure, its ratio to the baseline beside it.

What is pooled and what is compared is decided here alone; tables and pictures only show it.
Records store nanoseconds; a frame gives microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from llgbench.errors import RecordError
from llgbench.inputs.variant import VARIANTS
from llgbench.records import stats
from llgbench.records.record import SOUND, Arrays, Entry, Record, by_round
from llgbench.shown import visible

Kind = Literal["cold", "warm", "sibling", "cached"]
Measure = Literal["tbm", "ttfm", "compile", "mask", "consume"]

# What is summed up, in the order of the full table. The kinds of replay are never mixed.
MEASURES: tuple[tuple[Kind, Measure], ...] = (
    ("cold", "tbm"),
    ("cold", "ttfm"),
    ("cold", "compile"),
    ("cold", "mask"),
    ("cold", "consume"),
    ("warm", "tbm"),
    ("warm", "mask"),
    ("warm", "consume"),
    ("sibling", "tbm"),
    ("sibling", "mask"),
    ("sibling", "consume"),
    ("cached", "mask"),
)

# The field's columns: the average, then the percentiles.
STATS: dict[str, float | None] = {"avg": None, **{f"p{q:g}": q for q in stats.PERCENTILES}}

# What the table of single cases shows; all else would be anecdotes there.
CASE_STATS: dict[tuple[Kind, Measure], tuple[str, ...]] = {
    ("cold", "tbm"): ("p50", "p99", "p100"),
    ("cold", "ttfm"): ("p50",),
    ("cold", "compile"): ("p50",),
    ("warm", "tbm"): ("p50",),
    ("sibling", "tbm"): ("p50",),
}

# Cases that are pooled with each other, by tag; the first tag that a case has decides.
SETS = {"maskbench": "MaskBench files", "json": "JSON cases"}

BASELINE = "baseline"

# Where there is no difference at all, five rounds fall on one side of 1 once in sixteen times, and
# two rounds every other time.
MIN_ROUNDS = 5


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


@dataclass(frozen=True)
class Ratio:
    """A figure divided by the baseline's.

    Attributes:
        value: above 1 where the variant is slower.
        confirmed: whether each of at least MIN_ROUNDS rounds, taken alone, is on the same side of
            1; never so where a round alone cannot carry the percentile.
    """

    value: float
    confirmed: bool


@dataclass(frozen=True)
class Figure:
    """One row of a frame.

    Attributes:
        group: the set of cases that is pooled, ``JSON cases`` or ``MaskBench files``; of a single
            case its set, empty where it is in none.
        case: empty where cases are pooled.
        kind, measure, stat: such as ``cold``, ``tbm``, ``p99``.
        us: microseconds; None where the sample cannot carry the percentile.
        samples: how many times it is taken from.
        ratio, confirmed: see Ratio; None where no ratio is formed.
    """

    group: str
    vocab: str
    case: str
    variant: str
    engine: str
    kind: Kind
    measure: Measure
    stat: str
    us: float | None
    samples: int
    ratio: float | None
    confirmed: bool | None


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
        tags = self._tags.get(case, [])
        return next((name for tag, name in SETS.items() if tag in tags), "")

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
        return [name for name in SETS.values() if name in found]

    def entry(self, case: str, vocab: str, column: Column) -> Entry | None:
        """Return an entry, None where the record has none there."""
        return self._by_place.get((case, vocab, column))

    def labels(self, vocab: str, group: str, column: Column) -> Counter[str]:
        """Count the verdicts of a set's cases; ``not available`` is counted too."""
        entries = (self.entry(case, vocab, column) for case in self.cases(vocab, group))
        return Counter(label(entry) for entry in entries if entry is not None)

    def pooled(self, vocab: str, group: str, column: Column) -> list[Entry]:
        """Return the entries that a pooled column pools: those whose masks are right."""
        entries = (self.entry(case, vocab, column) for case in self.cases(vocab, group))
        return [entry for entry in entries if entry is not None and masks_right(entry)]

    def pairs(self, entries: Iterable[Entry], column: Column) -> list[tuple[Entry, Entry]]:
        """Return each entry of a column with the baseline's, where both have right masks."""
        if self.baseline is None or column == self.baseline:
            return []
        found = []
        for entry in entries:
            c = entry.configuration
            other = self.entry(c.case, c.vocab, self.baseline)
            if other is not None and masks_right(entry) and masks_right(other):
                found.append((entry, other))
        return found

    def replays(self, entry: Entry, kind: Kind, measure: Measure) -> Arrays:
        """Return an entry's times, one array a replay, nanoseconds."""
        key = (id(entry), kind, measure)
        if key not in self._replays:
            self._replays[key] = replays(entry, kind, measure)
        return self._replays[key]

    def times(
        self, entries: Iterable[Entry], kind: Kind, measure: Measure
    ) -> npt.NDArray[np.uint64]:
        """Return the times of several entries, pooled and sorted, nanoseconds."""
        return _pool(array for e in entries for array in self.replays(e, kind, measure))


def label(entry: Entry) -> str:
    """Return the verdict in a word; ``not available`` where nothing was measured."""
    return "not available" if entry.unavailable is not None else str(entry.verdict["label"])


def masks_right(entry: Entry) -> bool:
    """Return whether an entry was measured and no mask of it is wrong.

    ``limited`` is so too: its masks are what the lexer can know. And so is ``refused``, whose text
    is not in the grammar.
    """
    return label(entry) in SOUND


def replays(entry: Entry, kind: Kind, measure: Measure) -> Arrays:
    """Return one measure of an entry, one array a replay, nanoseconds.

    A text that ends by rejection has one mask more than tokens consumed; TBM is of the steps that
    have both. TTFM is a replay's compilation with the first mask of the same replay.
    """
    samples = entry.samples
    mask, consume = samples.get(f"{kind}_mask", []), samples.get(f"{kind}_consume", [])
    match measure:
        case "mask":
            return list(mask)
        case "consume":
            return list(consume)
        case "tbm":
            return [m[: len(c)] + c for m, c in zip(mask, consume, strict=True)]
    compiled = stats.pool(samples.get("compile", [])) if kind == "cold" else np.empty(0, np.uint64)
    each = [compiled[i : i + 1] for i in range(len(compiled))]
    if measure == "compile":
        return each
    # Broadcasting with an empty array gives an empty one: no first mask, no TTFM.
    return [c + m[:1] for c, m in zip(each, mask, strict=True)]


def families(view: View, vocab: str) -> dict[str, list[tuple[int, str]]]:
    """Return the families measured on a vocab: their members as (n, case), ascending."""
    found: dict[str, list[tuple[int, str]]] = {}
    for case in view.cases(vocab):
        value = view.value(case)
        if value is not None:
            # A folder's path may have an @ of its own.
            found.setdefault(case.rpartition("@")[0] or case, []).append((value, case))
    return {family: sorted(members) for family, members in found.items()}


@dataclass(frozen=True)
class FamilyPoint:
    """One member of a family under one column; times in µs, cold TBM of a step."""

    n: int
    verdict: str
    p50_us: float | None
    max_us: float | None
    samples: int


def family_points(view: View, family: str, vocab: str, column: Column) -> list[FamilyPoint]:
    """Return the points of one line: what a step costs by n."""
    found = []
    for n, case in families(view, vocab)[family]:
        entry = view.entry(case, vocab, column)
        if entry is None or entry.unavailable is not None:
            continue
        times = view.times([entry], "cold", "tbm")
        found.append(
            FamilyPoint(n, label(entry), _us(times, "p50"), _us(times, "p100"), len(times))
        )
    return found


def _us(times: npt.NDArray[np.uint64], name: str) -> float | None:
    value = statistic(times, name)
    return None if value is None else value / 1000


def frame(record: Record) -> pd.DataFrame:
    """Return a record as a long-form frame; its columns are the fields of Figure.

    Raises:
        RecordError: nothing was measured in it.
    """
    return frame_of(View(record))


def frame_of(view: View) -> pd.DataFrame:
    """Return the frame of a record that is indexed already."""
    rows = [asdict(figure) for figure in (*_pooled_figures(view), *_case_figures(view))]
    return pd.DataFrame(rows, columns=list(Figure.__dataclass_fields__))


def _pooled_figures(view: View) -> Iterator[Figure]:
    for vocab in view.vocabs:
        for group in view.groups(vocab):
            for column in view.columns:
                entries = view.pooled(vocab, group, column)
                for kind, measure in MEASURES:
                    yield from _figures(
                        view, entries, column, (group, vocab, ""), kind, measure, tuple(STATS)
                    )


def _case_figures(view: View) -> Iterator[Figure]:
    for entry in view.measured:
        c = entry.configuration
        for (kind, measure), names in CASE_STATS.items():
            yield from _figures(
                view, [entry], Column(c.variant, c.engine),
                (view.group(c.case), c.vocab, c.case), kind, measure, names,
            )  # fmt: skip


def _figures(
    view: View, entries: Sequence[Entry], column: Column, place: tuple[str, str, str],
    kind: Kind, measure: Measure, names: Sequence[str],
) -> Iterator[Figure]:  # fmt: skip
    times = view.times(entries, kind, measure)
    compared = _Compared(view, view.pairs(entries, column), kind, measure)
    for name in names:
        us = _us(times, name)
        ratio = compared.ratio(name) if us is not None else None
        yield Figure(
            *place, column.variant, column.engine, kind, measure, name,
            us=us,
            samples=len(times),
            ratio=None if ratio is None else ratio.value,
            confirmed=None if ratio is None else ratio.confirmed,
        )  # fmt: skip


def statistic(times: npt.NDArray[np.uint64], name: str) -> float | None:
    """Return one of STATS in the times' unit, None where the sample cannot carry it."""
    q = STATS[name]
    return stats.mean(times) if q is None else stats.percentile(times, q)


class _Compared:
    """The times of pairs of entries over the steps that both took, whole and round by round."""

    def __init__(
        self, view: View, pairs: Sequence[tuple[Entry, Entry]], kind: Kind, measure: Measure
    ) -> None:
        own: Arrays = []
        base: Arrays = []
        rounds: list[list[tuple[Arrays, Arrays]]] = []
        for entry, other in pairs:
            a, b = view.replays(entry, kind, measure), view.replays(other, kind, measure)
            if len(a) != len(b):
                continue  # measured with other rounds: no replay has its counterpart
            cut = [(x[:n], y[:n]) for x, y in zip(a, b, strict=True) for n in [min(len(x), len(y))]]
            a, b = [x for x, _ in cut], [y for _, y in cut]
            own += a
            base += b
            rounds.append(list(zip(by_round(entry, a), by_round(entry, b), strict=True)))
        self._whole = (_pool(own), _pool(base))
        n = min(map(len, rounds), default=0)
        self._rounds = [
            (_pool(x for r in rounds for x in r[i][0]), _pool(y for r in rounds for y in r[i][1]))
            for i in range(n)
            if all(len(r) == n for r in rounds)
        ]

    def ratio(self, name: str) -> Ratio | None:
        whole = _divide(*self._whole, name)
        if whole is None:
            return None
        single = [_divide(*sides, name) for sides in self._rounds]
        agree = [value is not None and (value > 1) == (whole > 1) for value in single]
        return Ratio(whole, confirmed=len(agree) >= MIN_ROUNDS and all(agree))


def _divide(own: npt.NDArray[np.uint64], base: npt.NDArray[np.uint64], name: str) -> float | None:
    a, b = statistic(own, name), statistic(base, name)
    return a / b if a is not None and b else None


def _pool(arrays: Iterable[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    """Pool and sort: the percentiles that follow are then quick, and the order never matters."""
    return np.sort(stats.pool(arrays))


def plural(n: int, what: str) -> str:
    """Return ``1 JSON case`` for (1, ``JSON cases``)."""
    return f"{n} {what.removesuffix('s') if n == 1 else what}"
