"""The picture of a comparison: every ratio with its interval."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from llgbench import files
from llgbench.compare.comparison import Comparison
from llgbench.errors import RecordError
from llgbench.report import plots
from llgbench.shown import visible

# Okabe and Ito's vermilion and blue; greys for what did not change.
_COLOURS = {"slower": "#D55E00", "faster": "#0072B2", "same": "#4d4d4d", "unclear": "#b0b0b0"}


def draw(found: Comparison, path: Path) -> None:
    """Write the picture as a PNG; what is slower or faster is coloured.

    Raises:
        RecordError: the file cannot be written.
    """
    files.write(path, plots.png(figure(found), 140), error=RecordError)


def figure(found: Comparison) -> Figure:
    """Return the picture, the table's first row on top."""
    rows = found.rows[::-1]
    made = Figure(figsize=(8, 1.6 + 0.19 * len(rows)), layout="constrained")
    FigureCanvasAgg(made)
    axes = made.subplots()
    threshold = found.plan.threshold
    low, high = 1 - 5 * threshold, 1 + 5 * threshold
    for at, row in enumerate(rows):
        e = row.estimate
        low, high = min(low, e.ratio * 0.98), max(high, e.ratio * 1.02)
        colour = _COLOURS[row.verdict]
        axes.plot([e.low, e.high], [at, at], color=colour, linewidth=1.5)
        axes.plot([e.ratio], [at], "o", color=colour, markersize=3.5)
    axes.axvspan(1 - threshold, 1 + threshold, color="#d9d9d9", alpha=0.5, linewidth=0)
    axes.axvline(1, color="black", linewidth=0.6)
    axes.set_xlim(low, high)
    axes.set_ylim(-1, len(rows))
    several = len(found.plan.vocabs) > 1
    names = [visible(f"{r.case}{f' on {r.vocab}' if several else ''}  {r.metric}") for r in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.set_xlabel("new / old, with 95% interval; the band is the threshold")
    axes.set_title(found.verdict, fontsize=10)
    for word, colour in _COLOURS.items():
        axes.plot([], [], "o-", color=colour, label=word)
    # Beside the axes' foot: in a corner it would lie on the last rows.
    made.legend(fontsize=8, loc="outside lower center", ncols=len(_COLOURS))
    return made
