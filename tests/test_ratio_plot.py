"""The picture of a comparison, by what is drawn in it."""

from __future__ import annotations

from pathlib import Path

from test_plots import assert_readable, panels, xy

from llgbench.compare.comparison import Comparison, Plan, Row
from llgbench.compare.inference import Estimate, Word
from llgbench.compare.sides import Side
from llgbench.report import ratio_plot


def compared(*rows: tuple[Word, float, float, float]) -> Comparison:
    side = Side("x", Path("x.so"), None, "1.0", "0" * 64)
    made = Comparison(side, side, Plan(("llama-bpe",), ("listed",)))
    made.rows = [
        Row("listed", "llama-bpe", f"metric {number}", "ns", 1.0, ratio,
            Estimate(ratio, low, high, p=0.5, spread=0.01, processes=8), outcome)
        for number, (outcome, low, ratio, high) in enumerate(rows)
    ]  # fmt: skip
    return made


def test_an_interval_beyond_the_axis_is_marked_as_cut() -> None:
    figure = ratio_plot.figure(
        compared(
            ("same", 0.99, 1.0, 1.01), ("unclear", 0.5, 1.0, 1.5), ("slower", 1.05, 1.3, 1.31),
            ("faster", 0.2, 0.8, 0.81),
        )
    )  # fmt: skip
    assert_readable(figure)
    (ax,) = panels(figure)
    low, high = ax.get_xlim()
    arrows = {
        (of.get_marker(), *xy(of)[0]) for of in ax.get_lines() if of.get_marker() in ("<", ">")
    }
    # The first row is at the top.
    assert arrows == {("<", low, 2.0), (">", high, 2.0), ("<", low, 0.0)}
    intervals = [xy(of) for of in ax.get_lines() if of.get_linewidth() == 1.5 and len(xy(of)) == 2]
    drawn = {y: (x, end) for (x, y), (end, _) in intervals}
    assert drawn == {3: (0.99, 1.01), 2: (low, high), 1: (1.05, 1.31), 0: (low, 0.81)}
    assert [t.get_text() for t in ax.get_yticklabels()] == [
        f"listed  metric {number}" for number in (3, 2, 1, 0)
    ]
    (found,) = figure.legends
    assert [t.get_text() for t in found.get_texts()] == ["slower", "faster", "same", "unclear"]


def test_ratios_of_many_rows_are_readable() -> None:
    row: tuple[Word, float, float, float] = ("same", 0.99, 1.0, 1.01)
    assert_readable(ratio_plot.figure(compared(*([row] * 90))))
