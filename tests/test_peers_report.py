"""The table and the picture of other engines: what has a ratio, and what is hollow."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from conftest import Lab
from in_process import llgbench
from test_plots import assert_readable, panels, xy

from llgbench.peers.results import CaseResult, Difference, Masks, Pairs, Samples
from llgbench.report import peers as report

SAMPLES = Samples(
    compile_ns=[2_000_000, 4_000_000],
    first_mask_ns=[9_000],
    cold_mask_ns=[1_000] * 40,
    head_mask_ns=[1_000] * 20,
    tail_mask_ns=[3_000] * 20,
)
FOUND = CaseResult(
    "case", "llama-bpe", "engine", "spaced", "right",
    masks=Masks(40, 30, {"json-escapes": 10}), samples=SAMPLES,
    pairs=Pairs([1_000] * 30, [4_000] * 30, left_out=[9] * 10), memory_bytes=1 << 20,
)  # fmt: skip
FIRST = Difference("text", 7, b'{"a": ', b"\x00", True, 3, 1)


def test_a_ratio_is_of_comparable_steps_of_right_cases_alone() -> None:
    assert report.comparison(FOUND) == (0.25, "30 of 40")
    assert report.comparison(replace(FOUND, outcome="accepts invalid")) == (None, None)
    assert report.comparison(replace(FOUND, outcome="another reading")) == (None, None)
    assert report.comparison(replace(FOUND, pairs=None)) == (None, None)
    few = replace(FOUND, pairs=Pairs([1] * 5, [2] * 5))
    assert report.comparison(few) == (None, None)  # too few for a median


def test_a_row_has_its_white_space_and_verdict() -> None:
    (row,) = report.rows([FOUND])
    assert (row["white space"], row["texts"]) == ("spaced", "right")
    assert row["masks"] == "equal but for json-escapes 10"
    assert (row["compile ms"], row["mask p50"], row["mask p99"]) == (3.0, 1.0, None)
    assert (row["tail/head"], row["MiB"]) == (3.0, 1.0)


def test_a_first_difference_is_told_in_bytes() -> None:
    found = replace(FOUND, masks=Masks(40, 30, {}, 10, FIRST))
    (line,) = report.remarks([found])
    assert "allows b'\\x00' after b'{\"a\": ' (step 7 of 'text')" in line
    assert "which the reference forbids" in line


def test_a_picture_of_right_and_wrong(tmp_path: Path) -> None:
    wrong = replace(FOUND, masks=Masks(40, 30, {}, 10, FIRST))
    assert report.sound(FOUND)
    assert not report.sound(wrong)
    assert not report.sound(replace(FOUND, outcome="refuses valid"))
    path = report.scatter([FOUND, wrong], tmp_path / "scatter.png")
    assert path is not None
    assert path.read_bytes().startswith(b"\x89PNG")
    assert report.scatter([replace(FOUND, samples=None)], tmp_path / "none.png") is None


def test_the_picture_is_readable_and_hollow_where_not_right() -> None:
    wrong = replace(FOUND, masks=Masks(40, 30, {}, 10, FIRST))
    names = ("wheel", "xgrammar:0.2.9", "xgrammar:0.2.9+lazy", "llama.cpp-gbnf", "glrmask")
    figure = report.figure([replace(r, engine=n) for n in names for r in (FOUND, wrong)])
    assert figure is not None
    assert_readable(figure)
    (ax,) = panels(figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(names)
    drawn = [of for of in ax.get_lines() if len(xy(of))]
    assert [of.get_fillstyle() for of in drawn] == ["full", "none"] * len(names)
    assert len({(of.get_marker(), of.get_color()) for of in drawn}) == len(names)
    sizes = [of.get_markersize() for of in drawn[::2]]
    assert all(under > over for under, over in pairwise(sizes))


def test_the_report_needs_neither_engine_nor_llama() -> None:
    code = (
        "import sys, llgbench.report.peers; "
        "sys.exit('llgbench._native' in sys.modules or 'llama_cpp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command(tmp_path: Path, lab: Lab) -> None:
    done = llgbench(
        "peers", "--engine", "wheel", "--case", "json-tool-call", "--vocab", "llama-spm",
        "--rounds", "1", "--white-space", "spaced", "--white-space", "compact",
        "--output", tmp_path / "out", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [r["white_space"] for r in found["results"]] == ["spaced", "compact"]
    assert {r["outcome"] for r in found["results"]} == {"right"}
    assert found["adapters"][0]["wall_ns"] > 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"peers.json", "scatter.png"}
