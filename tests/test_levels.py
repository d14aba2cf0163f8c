"""Levels of a series: exact splits, outliers, and what is too little to say anything."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llgbench.asv import levels
from llgbench.asv.levels import DISTANCE, Level

NONE = [None]


def noise(n: int, seed: int, sd: float = 0.01) -> levels.Floats:
    return np.random.default_rng(seed).normal(0, sd, n)


def bounds(found: list[Level]) -> list[tuple[int, int]]:
    return [(level.first, level.last) for level in found]


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_one_level_and_a_step_two(seed: int) -> None:
    flat = noise(60, seed)
    assert bounds(levels.find(flat, NONE * 60)) == [(0, 59)]
    stepped = flat + np.where(np.arange(60) < 40, 0.0, 0.1)
    first, second = levels.find(stepped, NONE * 60)
    assert (first.last, second.first) == (39, 40)
    assert second.value - first.value == pytest.approx(0.1, abs=0.01)
    assert levels.distance(first, second) > DISTANCE


def test_the_split_is_the_cheapest_of_all() -> None:
    """Against all splits of a short series, by the price that is documented."""
    random = np.random.default_rng(0)
    for _ in range(20):
        costs = random.normal(0, 0.05, 8) + np.repeat(random.normal(0, 0.3, 4), 2)
        errors = [0.05] * 8
        spread = levels.spread_of(costs, errors)

        def price(cuts: list[int], costs: levels.Floats = costs, spread: levels.Floats = spread
                  ) -> float:  # fmt: skip
            total = 0.0
            for start, stop in zip([0, *cuts], [*cuts, 8], strict=True):
                part, weight = costs[start:stop], 1 / spread[start:stop] ** 2
                mean = (part * weight).sum() / weight.sum()
                total += float((weight * (part - mean) ** 2).sum()) + DISTANCE**2
            return total

        every = [[at + 1 for at in range(7) if bits >> at & 1] for bits in range(128)]
        found = levels._split(costs, 1 / spread**2, 1)
        assert price([start for start, _ in found][1:]) == pytest.approx(min(map(price, every)))


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=40),
    st.booleans(),
)
def test_levels_are_in_order_and_within_the_series(values: list[float], known: bool) -> None:
    errors: list[float | None] = [0.01 if known else None] * len(values)
    found = levels.find(values, errors)
    assert found or not known
    for before, after in itertools.pairwise(found):
        assert before.last < after.first
    for level in found:
        assert 0 <= level.first <= level.last < len(values)
        assert min(values) - 1e-9 <= level.value <= max(values) + 1e-9
        assert level.error > 0


@given(st.lists(st.floats(-5, 5), min_size=8, max_size=30), st.floats(-50, 50))
def test_only_differences_count(values: list[float], by: float) -> None:
    errors = NONE * len(values)
    moved = levels.find([value + by for value in values], errors)
    assert len(moved) == len(levels.find(values, errors)) or not np.ptp(values)


@pytest.mark.parametrize("at", [0, 20, 39])
def test_a_lone_time_is_an_outlier_wherever_it_is(at: int) -> None:
    values = noise(40, 1)
    values[at] += 0.3
    (level,) = levels.find(values, NONE * 40)
    assert abs(level.value) < 0.01


def test_the_newest_value_of_known_error_is_a_level() -> None:
    values = noise(40, 1)
    values[-1] += 0.3
    assert bounds(levels.find(values, [0.01] * 40)) == [(0, 38), (39, 39)]
    assert bounds(levels.find(values, [0.3] * 40)) == [(0, 39)]


def test_few_times_say_nothing_and_few_known_ones_do() -> None:
    values = [0.0, 0.0, 0.4, 0.4]
    assert len(levels.find(values, NONE * 4)) == 1
    assert len(levels.find(values, [0.01] * 4)) == 2
    assert levels.find([], []) == []
    assert levels.find([0.0], [None]) == []


def test_counts_that_repeat_themselves_still_have_a_spread() -> None:
    assert len(levels.find([0.0] * 20 + [0.001] * 20, NONE * 40)) == 1
    assert len(levels.find([0.0] * 20 + [0.02] * 20, NONE * 40)) == 2


def test_a_value_of_unbounded_error_says_nothing() -> None:
    assert len(levels.find([0.0, 0.0, 5.0], [0.01, 0.01, math.inf])) == 1


def test_runs_are_of_equal_values() -> None:
    assert bounds(levels.runs([0.0, 0.0, 3.0, 0.0])) == [(0, 1), (2, 2), (3, 3)]
    assert levels.runs([]) == []


def test_a_distance_is_in_errors_of_the_difference() -> None:
    assert levels.distance(Level(0, 1, 0.0, 0.3), Level(2, 3, 1.0, 0.4)) == pytest.approx(2.0)
    assert math.isclose(levels.distance(Level(0, 1, 1.0, 0.3), Level(2, 3, 0.0, 0.4)), -2.0)
