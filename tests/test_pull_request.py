"""The pull-request section: what is seen and what is folded, that it fits, from data alone."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_comparison import BASE, HEAD, PLANTED, compared, everything

from llgbench.compare import comparison
from llgbench.compare.comparison import Comparison, Plan
from llgbench.compare.inference import Estimate
from llgbench.report import pull_request, ratio_plot


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compared()


def seen(text: str) -> str:
    """Return what a reader sees who unfolds nothing."""
    without = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    return re.sub(r"<!--.*?-->", "", without, flags=re.DOTALL)


def test_what_a_reviewer_sees_at_once(found: Comparison) -> None:
    text = seen(pull_request.section(found, "picture.png"))
    assert text.startswith("### llgbench: slower\n")
    assert "**slower: of " in text
    assert "Masks: equal at every one of" in text
    for metric in ("TBM p50", "mask p50", "consume p50", "TTFM p50"):
        assert metric in pull_request.VISIBLE
        assert f"| {metric} | " in text
    assert "| all cases on v | TBM p50 |" in text  # it is slower
    assert f"| a, t step {PLANTED} | " in text
    assert "TBM avg" not in text
    assert "llgbench pr" not in text


def test_all_else_is_folded(found: Comparison) -> None:
    text = pull_request.section(replace(found, machine=None), "picture.png")
    assert text.count("<details>") == text.count("</details>") == 3
    assert "| TBM avg |" in text
    assert f"All {len(found.rows)} metrics" in text
    assert "llgbench pr old new --case a --case b --vocab v" in text
    assert len(text) <= pull_request.MAX_CHARACTERS


def test_a_picture_is_a_file_to_attach(found: Comparison) -> None:
    text = pull_request.section(found, "picture.png")
    assert "![" not in text
    assert "<!-- attach picture.png" in text
    assert "attach" not in pull_request.section(found)


def test_a_regression_of_consume_alone_is_seen(found: Comparison) -> None:
    same = Estimate(1.0, 0.995, 1.005, 1.0, 0.01, 8)
    rows = tuple(
        row if row.metric == "consume" else replace(row, estimate=same, verdict="same")
        for row in found.rows
    )
    worse = Estimate(1.15, 1.14, 1.16, 0.0, 0.01, 8)
    rows = tuple(
        replace(row, estimate=worse, verdict="slower") if row.metric == "consume" else row
        for row in rows
    )
    text = seen(pull_request.section(replace(found, rows=rows)))
    assert "| a on v | consume |" in text
    assert "| +15.0% | +14.0% to +16.0% | slower |" in text


def test_facts_that_changed_are_seen() -> None:
    text = seen(pull_request.section(everything()))
    assert "**Masks differ**" in text
    assert "| a | rows | 10 | 12 | +20.0% |" in text
    assert "| b | rows |" not in text
    assert "| `f::g<T>` | 100 | 250 | +150 |" in text
    assert "middling" not in text
    assert "narrow (7 tokens), beginning with `a-z`, or the end" in text


def test_a_long_table_is_cut_and_says_so(found: Comparison) -> None:
    text = pull_request.section(replace(found, rows=found.rows * 1000))
    assert len(text) <= pull_request.MAX_CHARACTERS
    assert "more rows do not fit a comment" in text
    assert text.count("<details>") == text.count("</details>")


def test_one_release_built_twice_is_one_line_and_no_regression(found: Comparison) -> None:
    wheel = replace(BASE, spec="wheel", release="1.9.1")
    stock = replace(HEAD, spec="stock", release="1.9.1", commit=None)
    for base, head in ((wheel, stock), (stock, wheel), (stock, replace(wheel, spec="pypi:1.9.1"))):
        made = replace(found, base=base, head=head)
        assert (made.verdict, made.failed) == ("another build", False)
        text = seen(pull_request.section(made))
        assert "the sources are the same, compiler and profile differ" in text
        assert "| slower |" not in text
        assert " slower" not in text
    # Another release, another option or an unknown library: a comparison like any other.
    for base, head in (
        (replace(wheel, release="1.9.0"), stock),
        (wheel, replace(stock, fallback="greedy_lexeme_fallback")),
        (wheel, replace(stock, spec="./mine.so")), (wheel, replace(stock, spec="git:x@main")),
    ):  # fmt: skip
        assert replace(found, base=base, head=head).verdict == "slower"


def test_the_command_measures_the_same_again(found: Comparison) -> None:
    plan = Plan(("llama-bpe",), comparison.DEFAULT_CASES)
    default = replace(found, plan=plan)
    assert pull_request.command(default) == "llgbench pr old new"
    alone = replace(default, self_test=True)
    assert pull_request.command(alone) == "llgbench compare --self old"
    other = Plan(("v",), ("a b",), "baseline", 0.1, budget_s=60, unequal=True)
    assert pull_request.command(replace(found, plan=other, counted=5)) == (
        "llgbench pr old new --case 'a b' --vocab v --variant baseline --threshold 0.1 "
        "--budget 60 --where-equal --count"
    )


def test_the_picture_has_a_line_per_row(found: Comparison, tmp_path: Path) -> None:
    figure = ratio_plot.figure(found)
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [f"{row.case}  {row.metric}" for row in found.rows[::-1]]
    low, high = axes.get_xlim()
    assert all(low < row.estimate.ratio < high for row in found.rows)
    ratio_plot.draw(found, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_section_needs_neither_an_engine_nor_llama_cpp(found: Comparison, tmp_path: Path) -> None:
    comparison.write(found, tmp_path / "comparison.json")
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from llgbench.compare import comparison, table\n"
        "from llgbench.report import pull_request, ratio_plot\n"
        f"found = comparison.read(Path({str(tmp_path / 'comparison.json')!r}))\n"
        "found = table.judged_again(found, 0.5)\n"
        "print(pull_request.section(found).splitlines()[0])\n"
        "ratio_plot.figure(found)\n"
        "print(sorted({'llgbench._native', 'llama_cpp', 'llguidance', 'cffi'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["### llgbench: same", "[]"]
