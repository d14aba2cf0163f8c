"""The tables of a record: one function per table, as text and as plain data.

Times are shown in microseconds. What is pooled and compared is decided in view.py and frames.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from llgbench.inputs.configuration import Configuration
from llgbench.records.entry import Entry
from llgbench.records.record import Record
from llgbench.records.stats import MIN_ABOVE
from llgbench.records.times import Kind, Measure
from llgbench.report.families import families, family_points
from llgbench.report.frames import MEASURES, MIN_ROUNDS, STATS, frame_of
from llgbench.report.table import Table
from llgbench.report.view import Column, View
from llgbench.shown import DASH, number, plural

_NAMES: dict[Measure, str] = {
    "tbm": "TBM",
    "ttfm": "TTFM",
    "compile": "compile",
    "first_mask": "first mask",
    "mask": "mask",
    "consume": "consume",
}
_HEADLINE: tuple[tuple[Kind, Measure], ...] = (("cold", "tbm"), ("cold", "ttfm"))

# The columns of the table of cases.
_SHOWN = pd.DataFrame(
    [
        ("TBM p50", "cold", "tbm", "p50"),
        ("TBM p99", "cold", "tbm", "p99"),
        ("TBM max", "cold", "tbm", "p100"),
        ("warm TBM p50", "warm", "tbm", "p50"),
        ("sibling TBM p50", "sibling", "tbm", "p50"),
        ("TTFM p50", "cold", "ttfm", "p50"),
        ("compile p50", "cold", "compile", "p50"),
    ],
    columns=["shown", "kind", "measure", "stat"],
)

RULES = (
    "µs. TBM is mask + consume of one step, TTFM is compile + first mask. All times here are cold, "
    "of the first replay of a fresh matcher, unless a table says warm, sibling or cached.",
    "A column pools the steps of the cases in which its variant's masks are right: verdict right, "
    "or limited (every mask is what its lexer can know, yet a text of the grammar is rejected, as "
    "recorded). So columns that pool different cases do not compare by their times.",
    "In brackets the ratio to baseline; above 1 is slower. It is formed over the cases in which "
    "both have right masks, and over the steps that both took; with no such case the verdict "
    "stands instead.",
    f"≈ marks a ratio that may be noise: unmarked is only what at least {MIN_ROUNDS} rounds, each "
    "taken alone, put on the same side of 1.",
    f"{DASH} is a percentile that the sample cannot carry (fewer than {MIN_ABOVE} samples above "
    "it), or nothing to pool.",
)


def headline(record: Record) -> list[Table]:
    """Return the tables in the field's shape: one per vocab and set of cases, cold.

    Raises:
        RecordError: nothing was measured.
    """
    view = View(record)
    return _pooled_tables(view, frame_of(view), "headline", _HEADLINE)


def record_tables(record: Record) -> list[Table]:
    """Return all tables of a record, the most asked-for first.

    Raises:
        RecordError: nothing was measured.
    """
    view = View(record)
    figures = frame_of(view)
    return [
        *_pooled_tables(view, figures, "headline", _HEADLINE),
        *_checkpoint_tables(view),
        _case_table(view, figures),
        *_unavailable_table(view),
        *_pooled_tables(view, figures, "details", MEASURES),
    ]


def _pooled_tables(
    view: View, figures: pd.DataFrame, name: str, measures: Sequence[tuple[Kind, Measure]]
) -> list[Table]:
    return [
        _pooled_table(view, figures, name, measures, vocab, group)
        for vocab in view.vocabs
        for group in view.groups(vocab)
    ]


def _pooled_table(
    view: View, figures: pd.DataFrame, name: str, measures: Sequence[tuple[Kind, Measure]],
    vocab: str, group: str,
) -> Table:  # fmt: skip
    asked = pd.DataFrame(measures, columns=["kind", "measure"])
    here = figures[
        (figures["case"] == "") & (figures["vocab"] == vocab) & (figures["group"] == group)
    ].merge(asked, on=["kind", "measure"])
    columns = [Column(*at) for at in zip(here["variant"], here["engine"], strict=True)]
    by_column = here.assign(
        cell=_cells(here), place=[view.columns.index(column) for column in columns]
    )
    cells = by_column.pivot(index=["kind", "measure", "stat"], columns="place", values="cell")
    counts = by_column[by_column["stat"] == "avg"].pivot(
        index=["kind", "measure"], columns="place", values="samples"
    )
    verdicts = {column: _verdicts(view, vocab, group, column) for column in view.columns}
    rows = [
        ("verdict", *verdicts.values()),
        ("ratio over", *(_ratio_over(view, vocab, group, column) for column in view.columns)),
    ]
    several = len({kind for kind, _ in measures}) > 1
    for kind, measure in measures:
        named = f"{kind} {_NAMES[measure]}" if several else _NAMES[measure]
        for stat in STATS:
            rows.append((f"{named} {stat}", *cells.loc[(kind, measure, stat), :]))
        numbers = counts.loc[(kind, measure), :]
        rows.append((f"{named} samples", *(f"{n:,}" for n in numbers)))
    n = len(view.cases(vocab, group))
    what = "cold, warm, sibling and cached apart" if several else "cold"
    return Table(
        name=name,
        title=f"{vocab}: {plural(n, group)}, {what}, µs",
        headers=("", *(column.label for column in view.columns)),
        rows=tuple(rows),
        data=_plain(here.assign(verdict=[verdicts[column] for column in columns])),
    )


def _verdicts(view: View, vocab: str, group: str, column: Column) -> str:
    """Say in how many cases of a set a column has which verdict."""
    labels = view.labels(vocab, group, column)
    total = labels.total()
    if not total:
        return "not run"
    if labels["not available"] == total:
        return "not available"
    parts = [f"right in {labels['right']}"]
    parts += [
        f"{name} in {labels[name]}"
        for name in ("limited", "refused", "not judged", "wrong", "not available")
        if labels[name]
    ]
    return f"{', '.join(parts)} of {total}"


def _ratio_over(view: View, vocab: str, group: str, column: Column) -> str:
    """Say over which cases a column's ratios are formed, or why there are none."""
    if view.baseline is None:
        return "no baseline run"
    if column == view.baseline:
        return "is the baseline"
    own = view.pooled(vocab, group, column)
    n = len(view.pairs(own, column))
    if n:
        return plural(n, "cases")
    labels = view.labels(vocab, group, column)
    if not own:
        return "wrong" if labels["wrong"] else DASH
    base = view.labels(vocab, group, view.baseline)
    return "baseline is wrong" if base["wrong"] else f"baseline {DASH}"


def _case_table(view: View, figures: pd.DataFrame) -> Table:
    entries = _by_case(view)
    verdicts = {e.configuration: _verdict(e) for e in entries}
    of_cases = figures[figures["case"] != ""]
    # A merge keeps the order of what is shown, and the figures that have a column.
    shown = of_cases.merge(_SHOWN, on=["kind", "measure", "stat"])
    place = ["case", "vocab", "variant", "engine"]
    by_case = shown.assign(cell=_cells(shown)).pivot(index=place, columns="shown", values="cell")
    by_case = by_case[list(_SHOWN["shown"])]
    rows = []
    for entry in entries:
        c = entry.configuration
        cells = by_case.loc[(c.case, c.vocab, c.variant, c.engine), :]
        label = Column(c.variant, c.engine).label
        rows.append((c.case, c.vocab, label, *cells, verdicts[c]))
    of_figures = shown[place].itertuples(index=False, name=None)
    return Table(
        name="cases",
        title="Each case",
        headers=("case", "vocab", "variant", *_SHOWN["shown"], "verdict"),
        rows=tuple(rows),
        data=_plain(shown.assign(verdict=[verdicts[Configuration(*at)] for at in of_figures])),
    )


def _by_case(view: View) -> list[Entry]:
    """Return what was measured, case by case: variants of one case and vocab stand together."""
    vocabs, columns = list(view.vocabs), list(view.columns)
    cases = list(dict.fromkeys(e.configuration.case for e in view.measured))

    def place(entry: Entry) -> tuple[int, int, int]:
        c = entry.configuration
        return (
            cases.index(c.case),
            vocabs.index(c.vocab),
            columns.index(Column(c.variant, c.engine)),
        )

    return sorted(view.measured, key=place)


def _checkpoint_tables(view: View) -> list[Table]:
    """Return a table for each family of cases and vocab: cost of a step by the parameter."""
    return [
        _family_table(view, family, vocab)
        for vocab in view.vocabs
        for family in families(view, vocab)
    ]


def _family_table(view: View, family: str, vocab: str) -> Table:
    lines = {c: {p.n: p for p in family_points(view, family, vocab, c)} for c in view.columns}
    rows, data = [], []
    for n, _ in families(view, vocab)[family]:
        cells = [str(n)]
        for column, points in lines.items():
            point = points.get(n)
            if point is None:
                cells += [DASH, DASH]
                continue
            mark = "" if point.verdict == "right" else f" ({point.verdict})"
            cells += [number(point.p50_us), f"{number(point.max_us)}{mark}"]
            data.append(
                {"family": family, "vocab": vocab, "variant": column.variant,
                 "engine": column.engine, **vars(point)}
            )  # fmt: skip
        rows.append(tuple(cells))
    return Table(
        name="checkpoints",
        title=f"{vocab}: {family} by n, cold TBM of a step, µs",
        headers=("n", *(f"{c.label} {stat}" for c in lines for stat in ("p50", "max"))),
        rows=tuple(rows),
        data=tuple(data),
    )


def _unavailable_table(view: View) -> list[Table]:
    """Return what could not be measured, one row per reason; no table where all could."""
    columns: dict[tuple[str, str], list[str]] = {}
    data = []
    for c, entry in view.entries.items():
        if entry.unavailable is None:
            continue
        key = (f"{c.case} on {c.vocab}", entry.unavailable)
        columns.setdefault(key, []).append(Column(c.variant, c.engine).label)
        data.append({**vars(c), "reason": entry.unavailable})
    if not columns:
        return []
    places: dict[tuple[str, str], list[str]] = {}
    for (place, reason), labels in columns.items():
        places.setdefault((", ".join(labels), reason), []).append(place)
    rows = tuple(
        (labels, str(len(where)), _some(where), reason)
        for (labels, reason), where in places.items()
    )
    return [
        Table(
            name="unavailable",
            title="Not available",
            headers=("variants", "cases", "which", "reason"),
            rows=rows,
            data=tuple(data),
        )
    ]


def _some(places: Sequence[str], n: int = 3) -> str:
    shown = ", ".join(places[:n])
    return f"{shown} and {len(places) - n} more" if len(places) > n else shown


# ---- cells -------------------------------------------------------------------------------------


def _cells(figures: pd.DataFrame) -> list[str]:
    """Return each figure as it is shown: microseconds, in brackets the ratio to the baseline."""
    shown = []
    for us, ratio, confirmed in zip(
        figures["us"], figures["ratio"], figures["confirmed"], strict=True
    ):
        mark = "" if pd.isna(ratio) else f" ({'' if confirmed else '≈'}{number(ratio)}×)"
        shown.append(f"{DASH if pd.isna(us) else number(us)}{mark}")
    return shown


def _verdict(entry: Entry) -> str:
    reason = entry.verdict["reason"]
    return f"{entry.verdict['label']}: {reason}" if reason else str(entry.verdict["label"])


def _plain(figures: pd.DataFrame) -> tuple[dict[str, Any], ...]:
    """Return rows as plain data, for JSON; what is missing is None."""
    rows = figures.astype(object).where(figures.notna(), None).to_dict("records")
    return tuple({str(name): value for name, value in row.items()} for row in rows)
