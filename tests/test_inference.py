"""The arithmetic of verdicts, with chance injected."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llgbench.compare import inference
from llgbench.compare.inference import (
    Estimate,
    benjamini_hochberg,
    estimate,
    smallest_visible,
    spend,
    student_tail,
    verdicts,
)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("t", "freedom", "tail"),
    [
        # Student's table, two decimals of t and more.
        (6.3138, 1, 0.05),
        (2.9200, 2, 0.05),
        (2.3534, 3, 0.05),
        (2.5706, 5, 0.025),
        (2.2281, 10, 0.025),
        (3.1693, 10, 0.005),
        (1.9600, 100_000, 0.025),
    ],
)
def test_student_tail_is_that_of_the_tables(t: float, freedom: int, tail: float) -> None:
    assert student_tail(t, freedom) == pytest.approx(tail, rel=1e-3)
    assert student_tail(-t, freedom) == pytest.approx(1 - tail, rel=1e-3)
    assert inference.student_quantile(tail, freedom) == pytest.approx(t, rel=1e-3)


def test_benjamini_hochberg_of_their_own_example() -> None:
    # The fifteen p-values of Benjamini and Hochberg (1995), section 3: four are discoveries.
    p = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
        0.5719, 0.6528, 0.7590, 1.0,
    ]  # fmt: skip
    assert sum(q <= 0.05 for q in benjamini_hochberg(p)) == 4


@given(st.lists(st.floats(0, 1), max_size=50))
def test_q_values_keep_the_order_and_never_lie_below_p(p: list[float]) -> None:
    q = benjamini_hochberg(p)
    assert all(b >= a - 1e-12 for a, b in zip(p, q, strict=True))
    order = sorted(range(len(p)), key=lambda i: p[i])
    assert [q[i] for i in order] == sorted(q)


def test_the_shares_of_all_looks_sum_to_the_rate() -> None:
    assert sum(spend(0.05, look) for look in range(1, 10_000)) == pytest.approx(0.05, rel=1e-3)


def test_no_spread_is_no_doubt() -> None:
    e = estimate([1.01] * 3, 0.005, rng(), resamples=0)
    assert (e.low, e.high, e.p) == (e.ratio, e.ratio, 0.0)
    assert estimate([1.0] * 3, 0.005, rng(), resamples=0).p == 1.0


def test_swapped_sides_give_the_reciprocal() -> None:
    ratios = rng().lognormal(0.03, 0.01, 12)
    there, back = estimate(ratios, 0.02, rng(2)), estimate(1 / ratios, 0.02, rng(2))
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.low == pytest.approx(1 / back.high, rel=1e-3)


def test_one_disturbed_process_in_ten_does_not_carry_the_ratio() -> None:
    ratios = [1.0, 1.01, 0.99, 1.0, 1.005, 0.995, 1.0, 1.002, 0.998, 30.0]
    assert estimate(ratios, 0.02, rng()).ratio == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("n", [6, 9, 20])
def test_the_interval_holds_its_level(n: int) -> None:
    random = rng(n)
    hit = 0
    for _ in range(400):
        e = estimate(random.lognormal(0.0, 0.03, n), 0.02, random, resamples=500)
        hit += e.low <= 1 <= e.high
    assert hit >= 0.92 * 400


def test_tables_without_a_difference_are_never_called() -> None:
    random = rng(7)
    called = 0
    for _ in range(100):
        rows = [
            estimate(random.lognormal(0, 0.03, 8), 0.02, random, resamples=300) for _ in range(20)
        ]
        called += any(w in ("slower", "faster") for w in verdicts(rows, 0.02, 0.05))
    assert called <= 1


def test_five_percent_is_found_where_processes_vary_by_two() -> None:
    random = rng(9)
    found = 0
    for _ in range(50):
        rows = [estimate(random.lognormal(math.log(1.05), 0.02, 14), 0.02, random)]
        found += verdicts(rows, 0.02, 0.025) == ["slower"]
    assert found >= 45


@pytest.mark.parametrize(("rows", "n"), [(1, 20), (20, 10), (20, 20)])
def test_what_is_said_to_be_visible_is_found_four_times_in_five(rows: int, n: int) -> None:
    """A change of one row alone, of the size that a comparison of nothing says it can see."""
    random = rng(11)

    def table(change: float, count: int) -> list[Estimate]:
        ratios = random.lognormal(0, 0.02, (count, n))
        ratios[0] *= 1 + change
        return [estimate(row, 0.02, random, resamples=200) for row in ratios]

    promised = [smallest_visible(e, 0.02, rows, 0.05) for e in table(0, 120)]
    change = float(np.median(promised))
    found = sum(verdicts(table(change, rows), 0.02, 0.05)[0] == "slower" for _ in range(60))
    assert found >= 0.7 * 60
    # The more rows, the larger a lone change has to be.
    (e,) = table(0, 1)
    assert smallest_visible(e, 0.02, 2 * rows, 0.05) > smallest_visible(e, 0.02, rows, 0.05)


def test_each_verdict() -> None:
    def e(ratio: float, half: float, p: float) -> Estimate:
        return Estimate(ratio, ratio - half, ratio + half, p, 0.01, 10)

    table = [e(1.05, 0.01, 1e-4), e(0.9, 0.02, 1e-4), e(1.0, 0.01, 1.0), e(1.03, 0.03, 0.5)]
    assert verdicts(table, 0.02, 0.05) == ["slower", "faster", "same", "unclear"]


def test_too_few_processes_say_nothing() -> None:
    few = Estimate(1.5, 1.4, 1.6, 0.0, 0.01, inference.MIN_PROCESSES - 1)
    assert verdicts([few], 0.02, 0.05) == ["unclear"]
    with pytest.raises(ValueError, match="two processes"):
        estimate([1.0], 0.02, rng())
