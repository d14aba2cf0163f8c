"""The picture of a comparison: every ratio with its interval."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from llgbench.compare.comparison import Comparison
from llgbench.report import plots
from llgbench.shown import visible

# Okabe and Ito's vermilion and blue; greys for what did not change.
_COLOURS = {"slower": "#D55E00", "faster": "#0072B2", "same": "#4d4d4d", "unclear": "#999999"}


def draw(found: Comparison, path: Path) -> None:
    """Write the picture as a PNG.

    Raises:
        RecordError: the file cannot be written.
    """
    plots.save(figure(found), path)


def figure(found: Comparison) -> Figure:
    """Return the picture, the table's first row on top; what is slower or faster is coloured.

    An interval that reaches beyond the axis ends in an arrow there.
    """
    rows = found.rows[::-1]
    threshold = found.plan.threshold
    low, high = 1 - 5 * threshold, 1 + 5 * threshold
    for row in rows:
        low, high = min(low, row.estimate.ratio * 0.98), max(high, row.estimate.ratio * 1.02)
    made = plots.new(1.7 + 0.22 * len(rows))
    ax = made.subplots()
    for at, row in enumerate(rows):
        e, colour = row.estimate, _COLOURS[row.verdict]
        ax.plot([max(e.low, low), min(e.high, high)], [at, at], color=colour, linewidth=1.5)
        ax.plot([e.ratio], [at], "o", color=colour, markersize=3.5)
        for end, cut, arrow in ((low, e.low < low, "<"), (high, e.high > high, ">")):
            if cut:
                ax.plot([end], [at], arrow, color=colour, markersize=7, clip_on=False)
    ax.axvspan(1 - threshold, 1 + threshold, color="#d9d9d9", alpha=0.5, linewidth=0)
    ax.axvline(1, color="black", linewidth=0.6)
    ax.set_xlim(low, high)
    ax.set_ylim(-1, len(rows))
    several = len(found.plan.vocabs) > 1
    names = [visible(f"{r.case}{f' on {r.vocab}' if several else ''}  {r.metric}") for r in rows]
    ax.set_yticks(range(len(rows)), names)
    ax.set_xlabel("new / old, with 95% interval; the band is the threshold, an arrow: it goes on")
    ax.set_title(found.verdict)
    handles = [Line2D([], [], color=colour, label=word) for word, colour in _COLOURS.items()]
    made.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return made
