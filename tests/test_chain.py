"""Chained ratios: what a factor between two reference engines says, and how sure it is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llgbench.asv.chain import UNCHANGED, factor

costs = st.floats(1, 1000)


@given(st.lists(costs, min_size=1), costs, costs)
def test_a_carried_ratio_is_that_to_the_new_reference(
    commits: list[float], old: float, new: float
) -> None:
    by = factor([old / new] * 3)
    assert by.error == pytest.approx(0, abs=1e-9)
    carried = [cost / old * by.value for cost in commits]
    assert carried == pytest.approx([cost / new for cost in commits])


def test_the_error_is_that_of_the_factor() -> None:
    """Over many measurements of the same two, factors vary by what each says of itself."""
    random = np.random.default_rng(7)
    found = [factor((0.9 * random.lognormal(0, 0.02, 12)).tolist()) for _ in range(400)]
    logs = np.log([by.value for by in found])
    assert logs.mean() == pytest.approx(math.log(0.9), abs=0.002)
    assert np.mean([by.error for by in found]) == pytest.approx(logs.std(), rel=0.15)


def test_over_two_references_factors_multiply_and_errors_add_up() -> None:
    first, second = factor([0.89, 0.9, 0.91]), factor([1.2, 1.21, 1.19])
    both = first.then(second)
    assert both.value == pytest.approx(0.9 * 1.2)
    assert both.error == pytest.approx(math.hypot(first.error, second.error))
    assert UNCHANGED.then(first) == first


def test_one_disturbed_process_moves_no_history() -> None:
    quiet = [1.0, 1.001, 0.999, 1.0, 1.0]
    assert factor([*quiet[:4], 3.0]).value == pytest.approx(factor(quiet).value, rel=0.002)
