"""Pictures of a record: the tails by variant, and what a step costs by a family's parameter.

Drawn with matplotlib's Agg backend, which needs no display. The style of every picture is here: all
are drawn WIDTH wide with text of FONT points or more, which a page that shows them 800 pixels wide
makes 12 pixels; legends stand beside the data.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from llgbench import files
from llgbench.errors import RecordError
from llgbench.records.record import Record
from llgbench.records.stats import MIN_ABOVE
from llgbench.records.times import label
from llgbench.report.families import families, family_points
from llgbench.report.view import Column, View
from llgbench.shown import plural, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# In inches and points.
WIDTH = 9.0
FONT = 10.0
_LARGER = FONT + 1

matplotlib.rcParams.update(
    {
        "text.parse_math": False,  # a dollar sign in a name is no formula
        "font.size": FONT,
        "axes.titlesize": FONT,
        "figure.titlesize": _LARGER,
        "legend.fontsize": FONT,
    }
)

# Okabe and Ito's colours, told apart by the colour-blind as well; yellow is too pale for a line.
COLOURS = ("#000000", "#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
MARKERS = "osD^vPX"
_PERCENTILES = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)
_COLUMNS = 2
_MAX_STEP = 0.16
_DPI = 130
# Along a line, as a share of the panel; in points.
_MARK_EVERY = 0.12
_NESTED = 2.5
# Over so much of an axis two powers of ten at most are seen.
_FEW_POWERS = 100


def pictures(records: Sequence[Record], folder: Path) -> dict[str, Path]:
    """Draw what the records have to show; return the files by name.

    The names are ``tails`` and ``checkpoints``, of a second record ``tails-2``, and so on.

    Raises:
        RecordError: nothing was measured in a record, or the folder cannot be written.
    """
    found = {}
    for index, record in enumerate(records):
        for name, draw in (("tails", tails), ("checkpoints", checkpoints)):
            figure = draw(record)
            if figure is not None:
                key = picture_name(name, index)
                found[key] = save(figure, folder / f"{key}.png")
    return found


def picture_name(name: str, index: int) -> str:
    """Return a picture's name for the index-th record of a report."""
    return name if index == 0 else f"{name}-{index + 1}"


def tails(record: Record) -> Figure | None:
    """Draw cold TBM by percentile on a scale of nines: a panel a vocab, a line a variant.

    Every line of a panel is of the same cases, the pooled ones (all where there are none), so
    that the lines compare; a variant that is wrong in any of them is dashed.

    Returns:
        The picture; None where there is no panel to draw.

    Raises:
        RecordError: nothing was measured.
    """
    view = View(record)
    panels = [
        (vocab, name, cases)
        for vocab in view.vocabs
        for name, cases in _pools(view, vocab)
        if any(len(_cold_tbm(view, vocab, cases, column)) for column in view.columns)
    ]
    if not panels:
        return None
    figure, axes = _grid(len(panels), "Cold TBM by percentile; dashed: masks are wrong")
    for ax, (vocab, name, cases) in zip(axes, panels, strict=True):
        _tail_panel(ax, view, vocab, cases)
        ax.set_title(visible(f"{vocab}: {plural(len(cases), name)}"))
        ax.set_xlabel("percentile")
    return figure


def checkpoints(record: Record) -> Figure | None:
    """Draw a step's cold TBM by the parameter of each family of cases, median and maximum.

    Returns:
        The picture; None where the record has no family.

    Raises:
        RecordError: nothing was measured.
    """
    view = View(record)
    panels = [(vocab, family) for vocab in view.vocabs for family in families(view, vocab)]
    if not panels:
        return None
    figure, axes = _grid(len(panels), "Cold TBM by n: maximum solid, median dotted")
    for ax, (vocab, family) in zip(axes, panels, strict=True):
        _family_panel(ax, view, vocab, family)
        ax.set_title(visible(f"{family} on {vocab}"))
        ax.set_xlabel("n")
    return figure


def _pools(view: View, vocab: str) -> list[tuple[str, list[str]]]:
    """Return the sets of cases measured on a vocab, each with its cases."""
    measured = {e.configuration.case for e in view.measured if e.configuration.vocab == vocab}
    groups = [(group, view.cases(vocab, group)) for group in view.groups(vocab)]
    return [
        (name, [case for case in cases if case in measured])
        for name, cases in groups or [("cases", view.cases(vocab))]
    ]


def _cold_tbm(
    view: View, vocab: str, cases: Sequence[str], column: Column
) -> npt.NDArray[np.uint64]:
    entries = (view.entry(case, vocab, column) for case in cases)
    measured = [e for e in entries if e is not None and e.unavailable is None]
    return view.times(measured, "cold", "tbm")


def _tail_panel(ax: Axes, view: View, vocab: str, cases: Sequence[str]) -> None:
    longest = max(len(_cold_tbm(view, vocab, cases, column)) for column in view.columns)
    end = float(_nines(1 - MIN_ABOVE / longest)) if longest > MIN_ABOVE else 1.0
    at_max = end + 0.3
    drawn: list[float] = []  # places of maxima
    for index, column in enumerate(view.columns):
        labels = [
            label(entry) for case in cases if (entry := view.entry(case, vocab, column)) is not None
        ]
        if not labels:
            continue
        if all(word == "not available" for word in labels):
            _not_available(ax, column)
            continue
        wrong = labels.count("wrong")
        name = f"{column.label} (wrong in {wrong} of {len(labels)})" if wrong else column.label
        times = _cold_tbm(view, vocab, cases, column) / 1000
        style = _style(view, index, dashed=wrong > 0)
        if not len(times):
            ax.plot([], [], label=f"{name}, no step", **style)
            continue
        # Up to where the sample carries the percentile; the maximum stands apart.
        shown = len(times) - MIN_ABOVE + 1
        if shown > 0:
            chosen = np.unique(_nine_spaced(len(times))[_nine_spaced(len(times)) < shown])
            # Each line's marks lie between those of the others, so that lines that coincide
            # show whose they are.
            every = (_MARK_EVERY * index / len(view.columns), _MARK_EVERY)
            ax.plot(
                _nines(chosen / len(times)), times[chosen], label=name, markevery=every, **style
            )
        else:
            ax.plot([], [], label=name, **style)
        # Side by side, so that equal maxima do not hide each other.
        drawn.append(at_max + _MAX_STEP * index)
        ax.plot(drawn[-1], times[-1], **{**style, "linestyle": "none"})
    ticks = [q for q in _PERCENTILES if _nines(q / 100) <= end]
    middle = sum(drawn) / len(drawn) if drawn else at_max
    ax.axvline(end + 0.15, color="#bbbbbb", linewidth=0.8)
    ax.set_xticks(
        [*(float(_nines(q / 100)) for q in ticks), middle], [*(f"{q:g}" for q in ticks), "max"]
    )
    ax.set_xlim(right=at_max + _MAX_STEP * len(view.columns))
    ax.set_yscale("log")
    _finish(ax)


def _family_panel(ax: Axes, view: View, vocab: str, family: str) -> None:
    ns = [n for n, _ in families(view, vocab)[family]]
    for index, column in enumerate(view.columns):
        points = family_points(view, family, vocab, column)
        if not points:
            if any(view.entry(case, vocab, column) for _, case in families(view, vocab)[family]):
                _not_available(ax, column)
            continue
        wrong = sum(point.verdict == "wrong" for point in points)
        limited = sum(point.verdict == "limited" for point in points)
        said = f" (wrong in {wrong} of {len(points)})" if wrong else " (limited)" * bool(limited)
        style = _style(view, index, dashed=wrong > 0)
        # The marks of lines that coincide lie within each other.
        style["markersize"] += _NESTED * (len(view.columns) - 1 - index)
        top = [(p.n, p.max_us) for p in points if p.max_us is not None]
        ax.plot(*_xy(top), label=f"{column.label}{said}", **style)
        half = [(p.n, p.p50_us) for p in points if p.p50_us is not None]
        ax.plot(*_xy(half), **{**style, "linestyle": ":"})
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ticks = _apart(ns)
    slanted = len(ticks) > 8
    ax.set_xticks(ticks, [str(n) for n in ticks], rotation=45 if slanted else 0)
    ax.xaxis.set_minor_locator(NullLocator())
    _finish(ax, below=0.28 if slanted else 0.15)


def _not_available(ax: Axes, column: Column) -> None:
    ax.plot([], [], linestyle="none", label=f"{column.label}: not available")


def _nines(share: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return where a share of the samples lies on the x axis: 0.9 at 1, 0.99 at 2."""
    return np.asarray(-np.log10(1 - np.asarray(share, np.float64)))


def _nine_spaced(n: int, points: int = 400) -> npt.NDArray[np.int64]:
    """Return ranks of a sorted sample, evenly spaced on the scale of nines, below n."""
    shares = 1 - 10 ** -np.linspace(0, np.log10(max(n, 2)), points)
    return np.minimum((shares * n).astype(np.int64), n - 1)


def _apart(values: Sequence[int], factor: float = 1.3) -> list[int]:
    """Return values without those whose labels would touch the one before."""
    kept: list[int] = []
    for value in values:
        if not kept or value >= factor * kept[-1]:
            kept.append(value)
    return kept


def _xy(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [n for n, _ in points], [us for _, us in points]


def _style(view: View, index: int, *, dashed: bool) -> dict[str, Any]:
    # The first is the widest and lowest, so that a line that lies upon it leaves its rim visible.
    width = 1.3 + min(0.9 * (len(view.columns) - 1 - index), 2.7)
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 5.0,
        "markerfacecolor": "white",
        "markeredgewidth": 1.4,
        "linestyle": (0, (4, 1.5)) if dashed else "-",
        "linewidth": width,
        "alpha": 0.9,
    }


def _finish(ax: Axes, below: float = 0.15) -> None:
    ax.yaxis.set_major_formatter(FuncFormatter(lambda us, _: f"{us:,g}"))
    low, high = ax.get_ylim()
    # Where a power of ten alone would be labelled, two and five of it are as well.
    shown = (2, 5) if high < _FEW_POWERS * low else ()
    ax.yaxis.set_minor_formatter(
        FuncFormatter(lambda us, _: f"{us:,g}" if int(f"{us:e}"[0]) in shown else "")
    )
    ax.grid(which="major", color="#dddddd", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    # Below the panel: within it the legend would lie upon a line sooner or later.
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -below), frameon=False, handlelength=3)


def _grid(n: int, title: str) -> tuple[Figure, list[Axes]]:
    columns = min(n, _COLUMNS)
    rows = -(-n // columns)
    figure = new(4.4 * rows + 0.4)
    figure.suptitle(title)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes[n:]:
        ax.set_visible(False)
    for ax in axes[:n:columns]:
        ax.set_ylabel("mask + consume of a step, µs")
    return figure, list(axes[:n])


def new(height: float) -> Figure:
    """Return an empty figure of the style, its height in inches."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as a PNG; text in it that the font lacks is drawn as boxes, in silence.

    Raises:
        RecordError: the file cannot be written.
    """
    drawn = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(drawn, format="png", dpi=_DPI)
    files.write(path, drawn.getvalue(), error=RecordError)
    return path
