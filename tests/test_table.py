"""The table: which rows there are, and what they are made of."""

from __future__ import annotations

import numpy as np
import pytest

from llgbench.compare import table
from llgbench.compare.comparison import ALL, COUNT_METRICS, METRICS, Plan
from llgbench.compare.table import Measured

PLAN = Plan(("v",), ("a", "b"))


def test_a_row_keeps_the_ratios_it_was_made_of() -> None:
    pairs: Measured = {("a", "v", "TTFM"): [(2.0, 2.0 + n / 100) for n in range(6)]}
    (row,) = table.table(pairs, PLAN, 0.05, np.random.default_rng(1))
    assert row.ratios == pytest.approx([1 + n / 200 for n in range(6)])
    assert (row.base, row.head) == pytest.approx((2.0, 2.025))
    assert row.estimate.processes == 6


def test_few_processes_make_a_row_of_counts_and_none_of_times() -> None:
    pairs: Measured = {("a", "v", "TBM p50"): [(1.0, 1.0)] * 4}
    assert table.table(pairs, PLAN, 0.05, np.random.default_rng(1)) == ()
    (row,) = table.table(pairs, PLAN, 0.05, np.random.default_rng(1), "instructions")
    assert row.verdict == "same"


def test_cases_that_not_every_process_carries_are_not_in_the_whole() -> None:
    pairs: Measured = {
        ("a", "v", "consume"): [(1.0, 1.1)] * 6,
        ("b", "v", "consume"): [(1.0, 9.0)] * 5,
    }
    rows = table.table(pairs, PLAN, 0.05, np.random.default_rng(1))
    assert [row.case for row in rows] == ["a", "b"]  # of one case there is no mean
    pairs["c", "v", "consume"] = [(1.0, 1.1)] * 6
    plan = Plan(("v",), ("a", "b", "c"))
    whole, *_ = table.table(pairs, plan, 0.05, np.random.default_rng(1))
    assert whole.case == ALL
    assert whole.estimate.ratio == pytest.approx(1.1)


def test_rows_come_in_the_order_of_the_metrics() -> None:
    for unit, metrics in (("ns", METRICS), ("instructions", COUNT_METRICS)):
        pairs: Measured = {("a", "v", m): [(1.0, 1.0)] * 6 for m in reversed(metrics)}
        rows = table.table(pairs, PLAN, 0.05, np.random.default_rng(1), unit)  # type: ignore[arg-type]
        assert tuple(row.metric for row in rows) == metrics


def test_what_half_of_the_processes_lack_is_not_pooled() -> None:
    pairs: Measured = {
        ("", "v", "mask p50"): [(2.0, 3.0)] * 6, ("", "v", "mask p99"): [(2.0, 3.0)] * 2,
    }  # fmt: skip
    (row,) = table.pooled(pairs, {"v": 6}, 1)
    assert (row.metric, row.base, row.head) == ("mask p50", 2.0, 3.0)
    assert row.estimate.ratio == pytest.approx(1.5)
