"""The table and the picture of other engines: what has a ratio, and what is hollow."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import Lab
from in_process import llgbench
from test_cli import refused
from test_plots import assert_readable, panels, xy

from llgbench.errors import RecordError
from llgbench.peers.results import (
    Adapter,
    CaseResult,
    Difference,
    Found,
    Masks,
    Pairs,
    Samples,
)
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
    matcher_bytes=2048,
)  # fmt: skip
FIRST = Difference("text", 7, b'{"a": ', b"\x00", True, 3, 1)


def test_a_row_has_its_white_space_and_verdict() -> None:
    (row,) = report.rows([FOUND])
    assert (row["white space"], row["texts"]) == ("spaced", "right")
    assert row["masks"] == "equal but for json-escapes 10"
    assert (row["compile ms"], row["mask p50"], row["mask p99"]) == (3.0, 1.0, None)
    assert (row["tail/head"], row["MiB"], row["KiB a matcher"]) == (3.0, 1.0, 2.0)
    (whole,) = report.summary([FOUND])
    assert (whole["right"], whole["tail/head"], whole["× llguidance"]) == ("1 of 1", 3.0, 0.25)


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


ADAPTERS = (
    Adapter("gbnf", "llama.cpp", 41.4, 90.0, 140.0),
    Adapter("xgrammar:0.2.9", "xgrammar 0.2.9", 47.0, 100.0, float("nan")),
)


def test_an_adapter_stands_beside_its_limit() -> None:
    gbnf, xgrammar = report.adapters(Found(ADAPTERS, ()))
    assert (gbnf["instructions"], gbnf["clocked ns"], gbnf["at most"]) == (140, 41, 60)
    assert (xgrammar["instructions"], xgrammar["at most"]) == (None, 80)


def test_the_section_of_the_report(tmp_path: Path) -> None:
    wrong = replace(FOUND, case="a|b", masks=Masks(40, 30, {}, 10, FIRST))
    about = {"machine": {"cpu": "A CPU", "cores": 2}, "rounds": 3}
    text = report.write(Found(ADAPTERS, (FOUND, wrong), about), tmp_path)
    assert "A CPU, 2 cores; 3 rounds." in text
    assert "](peers.png)" in text
    assert "differ in 10 of 40" in text
    assert (tmp_path / "peers.png").exists()
    assert "nan" not in text.replace("not available", "")
    # A case's name does not end a column of a table.
    widths = {line.replace("\\|", "").count("|") for line in text.splitlines() if "40" in line}
    assert len(widths - {0}) <= 2


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    assert report.latest(tmp_path) is None
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "peers.json").write_text('{"adapters": 5}')
    with pytest.raises(RecordError, match=r"peers\.json"):
        report.latest(tmp_path)


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
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "peers.json", "peers.md", "peers.png",
    }  # fmt: skip
    assert all(r["matcher_bytes"] > 0 for r in found["results"])
    (tmp_path / "out").rename(tmp_path / "peers")
    stored = report.latest(tmp_path)
    assert stored is not None
    assert [r.white_space for r in stored.results] == ["spaced", "compact"]
    assert stored.about["rounds"] == 1


def test_the_adapter_alone(lab: Lab) -> None:
    done = llgbench(
        "peers", "--adapter", "--engine", "wheel", "--engine", "gbnf", "--vocab", "llama-spm",
        "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["results"] == []
    by_engine = {a["engine"]: a for a in found["adapters"]}
    # Instructions repeat where times do not: a call more shows.
    assert 60 < by_engine["wheel"]["instructions"] < 150
    assert by_engine["wheel"]["instructions"] < by_engine["gbnf"]["instructions"] < 250
    assert "not here" in refused("peers", "--adapter", "--engine", "xgrammar:0.0.1")
