"""Rises over the best level: levels are given, so that every answer is arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llgbench.asv import levels, rises
from llgbench.asv.levels import Level
from llgbench.asv.rises import Accepted, Rise, Rule

RULE = Rule(0.05)
FACTS = Rule(0.0, exact=True)


def steps(*values: float, error: float = 0.001, length: int = 10) -> list[Level]:
    """Levels of ten values each."""
    return [Level(n * length, n * length + 9, value, error) for n, value in enumerate(values)]


def told(found: Sequence[Rise]) -> list[tuple[int, int, int | None]]:
    return [(rise.before, rise.after, rise.until) for rise in found]


def test_small_steps_are_one_rise_over_the_best() -> None:
    (rise,) = rises.find(steps(0.0, 0.03, 0.06, 0.09), RULE)
    assert (rise.before, rise.since, rise.until) == (9, 20, None)
    assert (rise.old, rise.new) == (0.0, 0.09)


def test_the_range_ends_where_the_level_was_reached() -> None:
    (rise,) = rises.find(steps(0.0, 0.07, 0.2, 0.21, 0.19), RULE)
    assert (rise.before, rise.after, rise.new) == (9, 20, 0.19)


def test_what_was_mended_ends() -> None:
    assert told(rises.find(steps(0.0, 0.1, 0.0, 0.1), RULE)) == [(9, 10, 20), (29, 30, None)]
    assert rises.find(steps(0.1, 0.0, 0.04), RULE) == []


def test_the_best_level_counts_and_not_the_first() -> None:
    (rise,) = rises.find(steps(0.1, 0.0, 0.1), RULE)
    assert (rise.before, rise.old) == (19, 0.0)


def test_what_is_not_sure_is_no_rise() -> None:
    assert rises.find(steps(0.0, 0.1, error=0.02), RULE) == []
    assert len(rises.find(steps(0.0, 0.2, error=0.02), RULE)) == 1


def test_facts_need_no_distance() -> None:
    found = rises.find(levels.runs([0.0, 1.0, 1.0, 0.0, -1.0, 0.0]), FACTS)
    assert told(found) == [(0, 1, 3), (4, 5, None)]


def accepting(before: int, after: int, up_to: float) -> tuple[Accepted, Callable[[int], float]]:
    def covers(rise: Rise) -> int | None:
        touching = max(before, rise.before) <= min(after, rise.after)
        return 0 if touching and rise.new <= up_to + 0.01 else None

    return covers, lambda _: up_to


def test_what_is_accepted_is_the_new_ground() -> None:
    first, second = rises.find(steps(0.0, 0.1, 0.2), RULE, *accepting(9, 10, 0.1))
    assert (first.decision, first.before, first.after, first.new) == (0, 9, 10, 0.1)
    assert (second.decision, second.before, second.after, second.old) == (None, 19, 20, 0.1)


def test_a_creep_is_accepted_as_one() -> None:
    (rise,) = rises.find(steps(0.0, 0.03, 0.06, 0.09), RULE, *accepting(9, 30, 0.09))
    assert (rise.decision, rise.before, rise.after, rise.new) == (0, 9, 30, 0.09)


def test_a_creep_above_what_was_accepted_is_found() -> None:
    """What lies a little above the accepted level does not become accepted by that."""
    first, second = rises.find(steps(0.0, 0.104, 0.14, 0.16), RULE, *accepting(9, 10, 0.1))
    assert (first.decision, second.decision) == (0, None)
    assert (second.since, second.old) == (30, 0.1)


def test_both_end_where_the_old_level_is_back() -> None:
    found = rises.find(steps(0.0, 0.1, 0.2, 0.0, 0.1), RULE, *accepting(9, 10, 0.1))
    assert [(rise.decision, rise.until) for rise in found] == [(0, 30), (None, 30), (None, None)]


def test_the_accepted_lasts_where_only_the_later_one_is_mended() -> None:
    found = rises.find(steps(0.0, 0.1, 0.2, 0.1), RULE, *accepting(9, 10, 0.1))
    assert [(rise.decision, rise.until) for rise in found] == [(0, None), (None, 30)]


@given(st.lists(st.sampled_from([0.0, 0.02, 0.1, 0.2, 0.3]), max_size=12))
def test_at_most_one_rise_is_open_and_it_is_over_the_least(values: list[float]) -> None:
    found = rises.find(steps(*values), RULE)
    lasting = [rise for rise in found if rise.until is None]
    assert bool(lasting) == (bool(values) and values[-1] - min(values) >= 0.05)
    assert len(lasting) <= 1
    for rise in found:
        assert rise.before < rise.since <= rise.after
        assert rise.new - rise.old >= 0.05
        assert rise.until is None or rise.after < rise.until


@pytest.mark.parametrize("values", [[], [1.0]])
def test_nothing_rises_alone(values: list[float]) -> None:
    assert rises.find(steps(*values), RULE) == []
