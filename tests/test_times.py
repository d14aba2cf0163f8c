"""One definition of every time: each who reads a record gives the same figure for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import entry, record

from llgbench.asv import suite
from llgbench.commands import run
from llgbench.compare import metrics
from llgbench.compare.messages import CaseAnswer, Samples, SideTimes
from llgbench.inputs.configuration import QUICK_JSON_CASES, grid
from llgbench.records import stats, times
from llgbench.records.entry import Entry
from llgbench.report.frames import frame
from llgbench.shown import microseconds

RANDOM = np.random.default_rng(7)
MASKS = [RANDOM.integers(1_000, 900_000, n).astype(np.uint64) for n in (1500, 1200)]
# The second text ends by rejection: one mask more than tokens.
CONSUMES = [RANDOM.integers(100, 9_000, n).astype(np.uint64) for n in (1500, 1199)]
COMPILED = [3_000_000, 5_000_000]


@pytest.fixture
def subject() -> Entry:
    """One round of two texts."""
    return entry(mask=MASKS, consume=CONSUMES, compile_ns=COMPILED, texts=2)


def shown(found: Entry, folder: Path, measure: str, stat: str) -> float:
    """Return a figure of the report, in nanoseconds."""
    rows = frame(record(folder, found)).query("case == '' and kind == 'cold'")
    (us,) = rows[(rows["measure"] == measure) & (rows["stat"] == stat)]["us"]
    return float(us) * 1000


def test_every_reader_gives_the_same_figure(subject: Entry, tmp_path: Path) -> None:
    tracked = suite.of_entry(
        Entry(
            subject.configuration, subject.engine,
            {**subject.verdict, "forbidden": 0, "accepted": 2}, subject.samples,
            {**subject.facts, "wrong_tokens": 0},
        )
    )  # fmt: skip
    assert isinstance(tracked, dict)
    side = SideTimes(
        compile=Samples.of([np.array([ns], np.uint64) for ns in COMPILED]),
        mask=Samples.of(MASKS),
        consume=Samples.of(CONSUMES),
    )
    case = CaseAnswer(("a", "b"), 2700)
    compared = metrics.side_metrics(case, side)
    section = metrics._pooled([(case, side)])
    tbm = np.concatenate([MASKS[0] + CONSUMES[0], MASKS[1][:-1] + CONSUMES[1]])
    for q in (50, 99):
        expected = pytest.approx(np.percentile(tbm, q))
        assert shown(subject, tmp_path / f"{q}", "tbm", f"p{q}") == expected
        value = tracked[f"tbm_p{q}"]
        assert isinstance(value, dict)
        assert value["samples"] == [expected]
        assert compared[f"TBM p{q}"] == expected
        assert section[f"TBM p{q}"] == expected
    consume = pytest.approx(np.percentile(np.concatenate(CONSUMES), 50))
    assert shown(subject, tmp_path / "consume", "consume", "p50") == consume
    assert compared["consume"] == section["consume p50"] == consume
    mask = float(np.percentile(np.concatenate(MASKS), 99))
    assert shown(subject, tmp_path / "mask", "mask", "p99") == pytest.approx(mask)
    row = run._row(subject)
    assert row["mask p99"] == microseconds(mask)
    ttfm = [float(start + masks[0]) for start, masks in zip(COMPILED, MASKS, strict=True)]
    assert row["TTFM avg"] == microseconds(float(np.mean(ttfm)))
    assert section["TTFM avg"] == shown(subject, tmp_path / "ttfm", "ttfm", "avg") == np.mean(ttfm)
    value = tracked["ttfm"]
    assert isinstance(value, dict)
    assert value["samples"] == ttfm


@pytest.mark.parametrize(
    ("label", "right"),
    [("right", True), ("limited", True), ("refused", True), ("wrong", False),
     ("not judged", False)],
)  # fmt: skip
def test_right_is_one_set_of_verdicts(label: str, right: bool, tmp_path: Path) -> None:
    found = entry(label=label, reason="x")
    assert times.masks_right(found) == right
    assert isinstance(suite.pool([found]), dict) == right
    rows = frame(record(tmp_path, found)).query("case == '' and stat == 'p50'")
    assert (rows["samples"].max() > 0) == right


def test_the_json_cases_of_the_grid_are_those_with_the_tag() -> None:
    from llgbench.inputs import case_file

    quick = dict.fromkeys(c.case for c in grid("quick", ("baseline",), (), ()))
    pooled = [name for name in quick if times.pool_of(case_file.load(name).tags)]
    assert tuple(pooled) == QUICK_JSON_CASES
    assert times.pool_of(["json", "maskbench"]) == "MaskBench files"


def test_a_replay_without_a_mask_has_no_ttfm() -> None:
    compiled = [np.array([ns], np.uint64) for ns in (100, 200)]
    masks = [np.empty(0, np.uint64), np.array([7, 9], np.uint64)]
    assert [found.tolist() for found in times.ttfms(compiled, masks)] == [[], [207]]


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_rounds_of_entries_are_pooled_round_by_round(texts: int, rounds: int, entries: int) -> None:
    masks = [[1000 * number + at] * 3 for number in range(rounds) for at in range(texts)]
    made = [entry(case=f"c{n}", mask=masks, texts=texts) for n in range(entries)]
    pooled = times.pooled_rounds(made, "cold", "mask")
    assert [len(found) for found in pooled] == [3 * texts * entries] * rounds
    assert [set((found // 1000).tolist()) for found in pooled] == [{n} for n in range(rounds)]


@given(st.sampled_from([50.0, 90.0, 99.0, 99.9]))
def test_needed_is_the_fewest_that_carry_a_percentile(q: float) -> None:
    n = stats.needed(q)
    assert stats.percentile(np.arange(n, dtype=np.uint64), q) is not None
    assert stats.percentile(np.arange(n - 1, dtype=np.uint64), q) is None
