"""A record as a long-form frame: one row per figure, its ratio to the baseline beside it.

What is pooled and what is compared is decided here alone; tables and pictures only show it.
Records store nanoseconds; a frame gives microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from llgbench.records import stats
from llgbench.records.entry import Entry
from llgbench.records.packed import Arrays, Times
from llgbench.records.record import Record
from llgbench.records.times import Kind, Measure, by_round
from llgbench.report.view import Column, View, pooled

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

# Where there is no difference at all, five rounds fall on one side of 1 once in sixteen times, and
# two rounds every other time.
MIN_ROUNDS = 5


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
        us = microseconds(times, name)
        ratio = compared.ratio(name) if us is not None else None
        yield Figure(
            *place, column.variant, column.engine, kind, measure, name,
            us=us,
            samples=len(times),
            ratio=None if ratio is None else ratio.value,
            confirmed=None if ratio is None else ratio.confirmed,
        )  # fmt: skip


def microseconds(times: Times, name: str) -> float | None:
    """Return one of STATS in microseconds, None where the sample cannot carry it."""
    value = statistic(times, name)
    return None if value is None else value / 1000


def statistic(times: Times, name: str) -> float | None:
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
        self._whole = (pooled(own), pooled(base))
        n = min(map(len, rounds), default=0)
        self._rounds = [
            (pooled(x for r in rounds for x in r[i][0]), pooled(y for r in rounds for y in r[i][1]))
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


def _divide(own: Times, base: Times, name: str) -> float | None:
    a, b = statistic(own, name), statistic(base, name)
    return a / b if a is not None and b else None
