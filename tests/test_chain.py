"""Chained ratios: a new reference engine changes no commit's place among the others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llgbench.compare.chain import Link, carried, link
from llgbench.errors import CompareError

costs = st.dictionaries(
    st.sampled_from("abcdef"), st.floats(1, 1000, allow_nan=False), min_size=1, max_size=6
)


@given(costs, st.floats(1, 1000), st.floats(1, 1000))
def test_a_carried_ratio_is_that_to_the_new_reference(
    commits: dict[str, float], old: float, new: float
) -> None:
    to_old = {name: [cost / old] * 3 for name, cost in commits.items()}
    last = list(commits)[-1]
    by = link(to_old, {last: [commits[last] / new] * 3})
    assert by.commits == (last,)
    assert by.factor == pytest.approx(old / new)
    assert by.error == pytest.approx(0, abs=1e-9)
    history = carried({name: cost / old for name, cost in commits.items()}, by)
    assert history == pytest.approx({name: cost / new for name, cost in commits.items()})


def test_the_error_is_that_of_the_link() -> None:
    """Over many links between the same two references, factors vary by what each says of itself."""
    random = np.random.default_rng(7)

    def one() -> Link:
        old, new = (scale * random.lognormal(0, 0.02, 12) for scale in (1.0, 0.9))
        return link({"c": old.tolist()}, {"c": new.tolist()})

    links = [one() for _ in range(400)]
    factors = np.log([by.factor for by in links])
    assert factors.mean() == pytest.approx(math.log(0.9), abs=0.002)
    assert np.mean([by.error for by in links]) == pytest.approx(factors.std(), rel=0.15)


def test_more_commits_make_a_better_link_unless_they_disagree() -> None:
    random = np.random.default_rng(7)
    old = {name: random.lognormal(0, 0.02, 12).tolist() for name in "abcd"}
    new = {name: random.lognormal(0, 0.02, 12).tolist() for name in "abcd"}
    alone = link({"a": old["a"]}, {"a": new["a"]})
    assert link(old, new).error < alone.error
    # "d" became 30% slower beside one reference only: the link says how far it is to be trusted.
    new["d"] = [1.3 * ratio for ratio in new["d"]]
    assert link(old, new).error > 0.05


def test_one_disturbed_process_moves_no_history() -> None:
    quiet = [1.0, 1.001, 0.999, 1.0, 1.0]
    calm, hit = link({"c": quiet}, {"c": quiet}), link({"c": quiet}, {"c": [*quiet[:4], 3.0]})
    assert hit.factor == pytest.approx(calm.factor, rel=0.002)


def test_without_a_common_commit_there_is_no_link() -> None:
    for old, new in (
        ({"a": [1.0, 1.0]}, {"b": [1.0, 1.0]}),
        ({"a": [1.0]}, {"a": [1.0]}),
        ({}, {}),
    ):
        with pytest.raises(CompareError, match="no commit was measured with both"):
            link(old, new)
