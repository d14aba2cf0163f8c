"""The pull-request section, from made-up processes: what it says and that it fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from llgbench.compare import comparison
from llgbench.compare.comparison import Comparison, Plan
from llgbench.compare.sides import Side
from llgbench.llama.vocab import open_vocab
from llgbench.report import pull_request

CASE, VOCAB = "listed", "llama-spm"


@pytest.fixture(scope="module")
def found() -> Comparison:
    from llgbench.inputs import case_file
    from llgbench.measure import runner
    from llgbench.records.packed import pack

    side = Side("old", Path("old.so"), None, "1.0", "0" * 64)
    plan = Plan((VOCAB,), (CASE,))
    loaded = case_file.load(CASE)
    with open_vocab(VOCAB) as vocab:
        lengths = [len(trace) for trace in runner.traces_of(loaded, vocab)]
    random = np.random.default_rng(5)
    made = Comparison(side, side, plan, steps=sum(lengths))
    for _ in range(8):
        sides = {}
        for name, scale in (("base", 1.0), ("head", 1.2 * random.lognormal(0, 0.003))):
            replays = [np.full(n, int(1e5 * scale), np.uint64) for n in lengths] * 6
            replays = [r.copy() for r in replays]
            for at in range(0, len(replays), len(lengths)):
                replays[at][-1] = int(9e5 * scale)
            sides[name] = {
                "compile": pack([np.array([10**6], np.uint64)] * len(replays)),
                "mask": pack(replays),
                "consume": pack([np.full(len(r), 1000, np.uint64) for r in replays]),
            }
        case_found = {"texts": [t.name for t in loaded.texts], "steps": sum(lengths), **sides}
        made.processes.append({"vocab": VOCAB, "cases": {CASE: case_found}, "metadata": {}})
    made.rows = comparison.table(
        comparison.measured(made.processes), plan, 0.05, np.random.default_rng(1)
    )
    return made


def test_the_costliest_step_is_the_planted_one(found: Comparison, wheel: Side) -> None:
    from dataclasses import replace

    step = pull_request.worst_steps(replace(found, base=wheel), n=1)[0]
    assert step.case == CASE
    assert step.head_ns / step.base_ns == pytest.approx(1.2, rel=0.02)
    assert step.head_ns > 1e6
    assert step.allowed > 0


def test_the_section_has_its_parts_and_fits(found: Comparison, wheel: Side) -> None:
    from dataclasses import replace

    command = "llgbench compare old new"
    text = pull_request.section(replace(found, base=wheel), command, "picture.png")
    assert text.startswith("### llgbench: slower\n")
    assert "Masks: equal at every one of" in text
    assert "| TBM p50 |" in text
    assert "| TTFM avg |" in text
    assert "+20" in text
    assert command in text
    assert "![ratios" in text
    assert "<details>" in text
    assert len(text) <= pull_request.MAX_CHARACTERS


def test_a_long_table_is_cut_and_says_so(found: Comparison) -> None:
    from dataclasses import replace

    long = replace(found, rows=found.rows * 1000, processes=[])
    text = pull_request.section(long, "llgbench compare old new")
    assert len(text) <= pull_request.MAX_CHARACTERS
    assert "more rows do not fit a comment" in text


def test_the_picture_is_drawn(found: Comparison, tmp_path: Path) -> None:
    pull_request.picture(found, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def wheel() -> Side:
    from llgbench.compare import sides

    return sides.resolve("wheel", lambda _: None)
