from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from made_records import entry, record, unavailable
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from llgbench.errors import RecordError
from llgbench.records.record import Record
from llgbench.report import document, families, plots, view

MANY = np.arange(1, 2001, dtype=np.uint64) * 1000
SHOWN_PX = 800


def every_kind(folder: Path) -> Record:
    return record(
        folder,
        entry(mask=[MANY], label="wrong"),
        entry("token_to_piece", mask=[MANY]),
        entry("greedy_tokenize", mask=[[]], label="wrong"),  # fails before its first mask
        unavailable("greedy_lexeme_fallback"),
        entry(vocab="llama-spm", mask=[[1000] * 5]),  # too few for any percentile
        *(
            entry(variant, case=f"checkpoint@{n}", value=n, mask=[[n * 1000] * 20])
            for n in (16, 64, 65, 128)
            for variant in ("baseline", "token_to_piece")
        ),
    )


def panels(figure: Figure) -> list[Axes]:
    return [ax for ax in figure.axes if ax.get_visible()]


def legend(ax: Axes) -> list[str]:
    found = ax.get_legend()
    return [] if found is None else [text.get_text() for text in found.get_texts()]


def xy(of: Line2D) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in np.asarray(of.get_xydata())]


def line(ax: Axes, name: str) -> Line2D:
    (found,) = (line for line in ax.get_lines() if line.get_label() == name)
    return found


def texts(figure: Figure) -> Iterator[Text]:
    """Yield every text that is seen."""
    for text in figure.findobj(Text):
        if isinstance(text, Text) and text.get_visible() and text.get_text().strip():
            yield text


def assert_readable(figure: Figure) -> None:
    """No text is small at README's width, none lies on another, no legend on the data."""
    figure.draw_without_rendering()
    for text in texts(figure):
        size_px = float(text.get_fontsize()) / 72 * SHOWN_PX / figure.get_figwidth()
        assert size_px >= 11, (text.get_text(), size_px)
    legends = [*figure.legends, *(found for ax in panels(figure) if (found := ax.get_legend()))]
    assert legends
    for found in legends:
        for ax in panels(figure):
            assert not found.get_window_extent().overlaps(ax.get_window_extent())
    unseen = set()
    for ax in panels(figure):
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [
                t for t in axis.get_major_ticks() if t.label1.get_visible() and t.label1.get_text()
            ]
            unseen |= {t.label1 for t in ticks if not low <= t.get_loc() <= high}
            boxes = [t.label1.get_window_extent() for t in ticks if t.label1 not in unseen]
            assert not any(a.overlaps(b) for a, b in combinations(boxes, 2)), axis
    for text in texts(figure):
        if text not in unseen and (text.axes is None or text.axes.get_visible()):
            box = text.get_window_extent()
            assert -1 <= box.x0 <= box.x1 <= figure.bbox.x1 + 1, text.get_text()


def test_pictures_of_every_kind_of_line(tmp_path: Path) -> None:
    made = every_kind(tmp_path / "records")
    found = plots.pictures([made, record(tmp_path / "records", entry())], tmp_path)
    assert list(found) == ["tails", "checkpoints", "tails-2"]
    assert all(path.is_file() for path in found.values())
    assert not list(tmp_path.glob("*.part"))


def test_tails_say_what_they_show(tmp_path: Path) -> None:
    figure = plots.tails(every_kind(tmp_path))
    assert figure is not None
    assert_readable(figure)
    bpe, spm = panels(figure)
    assert bpe.get_title() == "llama-bpe: 5 JSON cases"
    assert bpe.get_xlabel() == "percentile"
    assert bpe.get_ylabel() == "mask + consume of a step, µs"
    assert legend(bpe) == [
        "baseline (wrong in 1 of 5)", "token_to_piece",
        "greedy_tokenize (wrong in 1 of 1), no step", "greedy_lexeme_fallback: not available",
    ]  # fmt: skip
    assert legend(spm) == ["baseline"]
    right, wrong = line(bpe, "token_to_piece"), line(bpe, "baseline (wrong in 1 of 5)")
    assert right.get_linestyle() == "-"
    assert wrong.get_linestyle() == "--"
    # In µs, up to where the sample carries a percentile; the maximum stands apart.
    values = np.asarray(right.get_ydata())
    assert values[0] == 1.0
    assert values[-1] <= 1991
    assert (np.diff(values) >= 0).all()
    alone = [xy(of) for of in bpe.get_lines() if of.get_linestyle() == "None" and xy(of)]
    assert [y for ((_, y),) in alone] == [2000.0, 2000.0]
    assert [t.get_text() for t in bpe.get_xticklabels()] == ["0", "50", "90", "99", "max"]
    for ax in (bpe, spm):  # the label lies below the marks, however few there are
        marks = [xy(of)[0][0] for of in ax.get_lines() if of.get_linestyle() == "None" and xy(of)]
        assert ax.get_xticks()[-1] == pytest.approx(np.mean(marks))
        assert max(marks) < ax.get_xlim()[1] - 0.1


def test_lines_that_coincide_are_told_apart(tmp_path: Path) -> None:
    """By their widths, and by marks of their own where no other's are."""
    variants = ("baseline", "token_to_piece", "greedy_tokenize", "greedy_lexeme_fallback")
    figure = plots.tails(record(tmp_path, *(entry(v, mask=[MANY]) for v in variants)))
    assert figure is not None
    (ax,) = panels(figure)
    lines = [line(ax, name) for name in variants]
    for of, other in combinations(lines, 2):
        np.testing.assert_array_equal(of.get_xydata(), other.get_xydata())
        assert of.get_color() != other.get_color()
        assert of.get_marker() != other.get_marker()
    for under, over in pairwise(lines):
        assert under.get_linewidth() > over.get_linewidth()
        assert under.get_zorder() <= over.get_zorder()
    starts = [of.get_markevery()[0] for of in lines]  # type: ignore[index]
    (step,) = {of.get_markevery()[1] for of in lines}  # type: ignore[index]
    assert min(b - a for a, b in pairwise([*starts, starts[0] + step])) > 0.02


def test_marks_at_one_point_lie_within_each_other(tmp_path: Path) -> None:
    figure = plots.checkpoints(every_kind(tmp_path))
    assert figure is not None
    assert_readable(figure)
    (ax,) = panels(figure)
    assert ax.get_title() == "checkpoint on llama-bpe"
    assert legend(ax) == ["baseline", "token_to_piece"]
    maxima = [line(ax, name) for name in legend(ax)]
    medians = [of for of in ax.get_lines() if of.get_linestyle() == ":"]
    for of in (*maxima, *medians):
        np.testing.assert_array_equal(of.get_xdata(), [16, 64, 65, 128])
        np.testing.assert_array_equal(of.get_ydata(), [16, 64, 65, 128])
    for outer, inner in (maxima, medians):
        assert outer.get_markersize() >= inner.get_markersize() + 2
        assert outer.get_markerfacecolor() == inner.get_markerfacecolor() == "white"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["16", "64", "128"]
    # A power of ten alone would say little of the values.
    minor = [t.get_text() for t in ax.yaxis.get_minorticklabels()]
    assert {"20", "50"} <= set(minor)
    assert "30" not in minor


@pytest.mark.parametrize("vocabs", [1, 3])
def test_any_number_of_panels_is_readable(tmp_path: Path, vocabs: int) -> None:
    variants = ("baseline", "token_to_piece", "greedy_tokenize", "greedy_lexeme_fallback")
    ns = (16, 64, 65, 128, 256, 512, 1024, 2048, 4096, 8192)
    made = record(
        tmp_path,
        *(
            entry(variant, vocab=f"vocabulary-{number}", mask=[np.repeat(MANY, 6)], label="wrong")
            for number in range(vocabs)
            for variant in variants
        ),
        *(
            entry(case=f"checkpoint@{n}", value=n, vocab=f"vocabulary-{number}", mask=[[n] * 20])
            for number in range(vocabs)
            for n in ns
        ),
    )
    for figure in (plots.tails(made), plots.checkpoints(made)):
        assert figure is not None
        assert_readable(figure)
        assert len(panels(figure)) == vocabs
        for ax in panels(figure):
            assert ax.get_ylabel() or ax.get_subplotspec().colspan.start > 0  # type: ignore[union-attr]


def test_no_family_no_picture_of_checkpoints(tmp_path: Path) -> None:
    made = record(tmp_path / "records", entry())
    assert plots.checkpoints(made) is None
    assert list(plots.pictures([made], tmp_path)) == ["tails"]


def test_cases_in_no_set_have_tails_too(tmp_path: Path) -> None:
    figure = plots.tails(record(tmp_path / "records", entry(case="listed", tags=["lexer"])))
    assert figure is not None
    assert [ax.get_title() for ax in panels(figure)] == ["llama-bpe: 1 case"]


def test_nothing_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="nothing was measured"):
        plots.tails(record(tmp_path / "records"))


def test_a_picture_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    made = record(tmp_path / "records", entry())
    with pytest.raises(RecordError, match="cannot write"):
        plots.pictures([made], made.path)


def test_labels_by_n_do_not_touch() -> None:
    assert plots._apart([16, 64, 65, 128]) == [16, 64, 128]


def test_nines_are_evenly_spaced() -> None:
    np.testing.assert_allclose(plots._nines([0.0, 0.9, 0.99, 0.999]), [0, 1, 2, 3], atol=1e-9)
    ranks = plots._nine_spaced(1000)
    assert ranks[0] == 0
    assert ranks[-1] == 999
    assert (np.diff(ranks) >= 0).all()


NAMES = ("$a_{b$", "a|b<c>*d`e", "模型", os.fsdecode(b"caf\xe9"), "[/b]\nx", "/x@y/z")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_any_name_can_be_drawn_and_stands_in_its_cell(tmp_path: Path, name: str) -> None:
    made = record(
        tmp_path / "records",
        entry(case=name, vocab=name, engine=name),
        entry(case=f"{name}@16", vocab=name, engine=name, value=16, mask=[[900] * 20]),
    )
    text = document.write([made], tmp_path).read_text()
    assert (tmp_path / "tails.png").stat().st_size > 1000
    rows = [line for line in text.splitlines() if line.startswith("| ") and "baseline on" in line]
    assert rows
    assert not any("<" in line.replace("\\<", "") for line in rows)
    assert families.families(view.View(made), name) == {name: [(16, f"{name}@16")]}
