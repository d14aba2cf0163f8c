"""The tables of a record and of ASV results: one function a table, as text and as plain data.

Times are shown in microseconds. What is pooled and compared is decided in frames.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from llgbench.asv.results import AsvValue
from llgbench.fallback import summary
from llgbench.records.record import Entry, Record
from llgbench.records.stats import MIN_ABOVE
from llgbench.report.frames import (
    MEASURES,
    MIN_ROUNDS,
    STATS,
    Column,
    Kind,
    Measure,
    View,
    families,
    family_points,
    frame_of,
    plural,
)

DASH = "–"
_NAMES: dict[Measure, str] = {
    "tbm": "TBM",
    "ttfm": "TTFM",
    "compile": "compile",
    "mask": "mask",
    "consume": "consume",
}
_HEADLINE: tuple[tuple[Kind, Measure], ...] = (("cold", "tbm"), ("cold", "ttfm"))

_MISSING = {
    "n/a": "n/a, the benchmark does not apply or its sample does not carry the percentile",
    "failed": "failed; asv run --show-stderr says why",
}

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


@dataclass(frozen=True)
class Table:
    """One table, ready to be shown, and the same as plain data.

    Attributes:
        name: what kind of table: headline, cases, checkpoints, details, unavailable, asv or
            fallback.
        title: one line.
        headers: one a column.
        rows: as text, as many cells as headers.
        data: the same as plain data, unrounded, for JSON.
        left: how many columns stand to the left; the others are numbers.
        notes: what only this table needs to have said.
    """

    name: str
    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    data: tuple[dict[str, Any], ...]
    left: int = 1
    notes: tuple[str, ...] = ()


# ---- the tables of a record ----------------------------------------------------------------------


def headline(record: Record) -> list[Table]:
    """Return the tables in the field's shape: one a vocab and set of cases, cold.

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
    here = figures[
        (figures["case"] == "") & (figures["vocab"] == vocab) & (figures["group"] == group)
    ]
    by_key = {
        (f["variant"], f["engine"], f["kind"], f["measure"], f["stat"]): f
        for f in map(_clean, here.to_dict("records"))
    }
    several = len({kind for kind, _ in measures}) > 1
    verdicts = {column: _verdicts(view, vocab, group, column) for column in view.columns}
    rows = [
        ("verdict", *verdicts.values()),
        ("ratio over", *(_ratio_over(view, vocab, group, column) for column in view.columns)),
    ]
    data = []
    for kind, measure in measures:
        named = f"{kind} {_NAMES[measure]}" if several else _NAMES[measure]
        for stat in STATS:
            cells = [by_key[c.variant, c.engine, kind, measure, stat] for c in view.columns]
            rows.append((f"{named} {stat}", *(_cell(f["us"], _ratio(f)) for f in cells)))
            data += cells
        counts = [by_key[c.variant, c.engine, kind, measure, "avg"] for c in view.columns]
        rows.append((f"{named} samples", *(f"{f['samples']:,}" for f in counts)))
    n = len(view.cases(vocab, group))
    what = "cold, warm, sibling and cached apart" if several else "cold"
    return Table(
        name=name,
        title=f"{vocab}: {plural(n, group)}, {what}, µs",
        headers=("", *(column.label for column in view.columns)),
        rows=tuple(rows),
        data=tuple({**f, "verdict": verdicts[_column(f)]} for f in data),
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
    here = figures[figures["case"] != ""]
    by_key = {
        (f["case"], f["vocab"], f["variant"], f["engine"], f["kind"], f["measure"], f["stat"]): f
        for f in map(_clean, here.to_dict("records"))
    }
    shown: tuple[tuple[str, Kind, Measure, str], ...] = (
        ("TBM p50", "cold", "tbm", "p50"),
        ("TBM p99", "cold", "tbm", "p99"),
        ("TBM max", "cold", "tbm", "p100"),
        ("warm TBM p50", "warm", "tbm", "p50"),
        ("sibling TBM p50", "sibling", "tbm", "p50"),
        ("TTFM p50", "cold", "ttfm", "p50"),
        ("compile p50", "cold", "compile", "p50"),
    )
    rows, data = [], []
    for entry in _by_case(view):
        c = entry.configuration
        column = Column(c.variant, c.engine)
        found = [
            by_key[c.case, c.vocab, c.variant, c.engine, kind, measure, stat]
            for _, kind, measure, stat in shown
        ]
        cells = [_cell(f["us"], _ratio(f)) for f in found]
        rows.append((c.case, c.vocab, column.label, *cells, _verdict(entry)))
        for (name, *_), f in zip(shown, found, strict=True):
            data.append({**f, "shown": name, "verdict": _verdict(entry)})
    return Table(
        name="cases",
        title="Each case",
        headers=("case", "vocab", "variant", *(name for name, *_ in shown), "verdict"),
        rows=tuple(rows),
        data=tuple(data),
        left=3,
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
    """Return what could not be measured, one row a reason; no table where all could."""
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
            left=4,
        )
    ]


def _some(places: Sequence[str], n: int = 3) -> str:
    shown = ", ".join(places[:n])
    return f"{shown} and {len(places) - n} more" if len(places) > n else shown


# ---- ASV ---------------------------------------------------------------------------------------


def asv_tables(values: Sequence[AsvValue]) -> list[Table]:
    """Return a table for each machine and commit that ASV has values of.

    What has no value is in the table's data and counted in a note, but has no row.
    """
    found = []
    for machine, commit in dict.fromkeys((v.machine, v.commit) for v in values):
        here = [v for v in values if (v.machine, v.commit) == (machine, commit)]
        missing = Counter(v.missing for v in here if v.missing)
        found.append(
            Table(
                name="asv",
                title=f"ASV: {machine}, commit {commit[:12]}",
                headers=("benchmark", "parameters", "value"),
                rows=tuple(
                    (v.benchmark, " | ".join(v.parameters), with_unit(v.value, v.unit))
                    for v in here
                    if not v.missing
                ),
                data=tuple({**vars(v), "parameters": list(v.parameters)} for v in here),
                left=2,
                notes=tuple(
                    f"{plural(n, 'values')} more: {_MISSING[why]}" for why, n in missing.items()
                ),
            )
        )
    return found


def with_unit(value: float | None, unit: str) -> str:
    """Return a value of ASV as text; empty where there is none."""
    if value is None:
        return ""
    match value, unit:
        case seconds, "seconds":
            return f"{number(seconds * 1e6)} µs"
        case ns, "ns" | "nanoseconds":
            return f"{number(ns / 1e3)} µs"
        case size, "bytes":
            return f"{number(size / 2**20)} MiB"
    shown = f"{value:,.0f}" if float(value).is_integer() else number(value)  # a count is whole
    return f"{shown} {unit}".rstrip()


# ---- the fallback's overhead --------------------------------------------------------------------

_OVERHEAD = {
    "summary": summary.TITLE,
    "ratios": "Where no boundary is pending: off over stock, on over off, instructions",
    "pending": "Masks with a boundary pending, and of its two readings alone, instructions",
    "checkpoints": "Checkpoints: a step in instructions and work, by n",
    "memory": "A boundary pending over n bytes: bytes of heap",
}


def overhead_tables(found: Mapping[str, Any]) -> list[Table]:
    """Return what overhead_summary.load gives as tables, the summary first."""
    notes = {
        "summary": f"The worst of its rows, on {found.get('vocab')}: `llgbench overhead --count`, "
        f"llgbench {found.get('provenance', {}).get('llgbench')}.",
        "ratios": "Means over seeds; spread is the largest distance of one seed from its mean.",
    }
    tables = []
    for name, title in _OVERHEAD.items():
        rows = found.get(name)
        if not rows:
            continue
        headers = tuple(rows[0])
        text = [h for h in headers if isinstance(rows[0][h], str)]
        tables.append(
            Table(
                name="fallback",
                title=title,
                headers=headers,
                rows=tuple(tuple(_plain_cell(row.get(h)) for h in headers) for row in rows),
                data=tuple(rows),
                left=len(text) if headers[: len(text)] == tuple(text) else 1,
                notes=(notes[name],) if name in notes else (),
            )
        )
    return tables


def _plain_cell(value: object) -> str:
    match value:
        case None:
            return DASH
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
    return str(value)


# ---- cells -------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Return a number with three significant digits, whole from 100 on; a dash for None."""
    if value is None:
        return DASH
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    digits = 1 if abs(value) >= 9.995 else 2
    return f"{value:.{digits}f}"


def _cell(us: float | None, ratio: str) -> str:
    return f"{number(us)} ({ratio})" if ratio else number(us)


def _ratio(figure: Mapping[str, Any]) -> str:
    value = figure["ratio"]
    if value is None:
        return ""
    return f"{'' if figure['confirmed'] else '≈'}{number(value)}×"


def _verdict(entry: Entry) -> str:
    reason = entry.verdict["reason"]
    return f"{entry.verdict['label']}: {reason}" if reason else str(entry.verdict["label"])


def _column(figure: Mapping[str, Any]) -> Column:
    return Column(figure["variant"], figure["engine"])


def _clean(figure: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a row of the frame without the marks pandas has for what is missing."""
    return {key: None if pd.isna(value) else value for key, value in figure.items()}
