from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from llgbench.records import stats

Times = npt.NDArray[np.uint64]
# Up to some days in nanoseconds; beyond 2**53 a float no longer holds them exactly.
times = arrays(np.uint64, st.integers(0, 60), elements=st.integers(0, 2**50))


@settings(deadline=None)
@given(times, st.sampled_from(stats.PERCENTILES))
def test_percentile_lies_within_the_sample(sample: Times, q: float) -> None:
    value = stats.percentile(sample, q)
    if value is not None:
        assert sample.min() <= value <= sample.max()


@settings(deadline=None)
@given(times)
def test_percentiles_never_fall(sample: Times) -> None:
    found = [stats.percentile(sample, q) for q in stats.PERCENTILES]
    given_ones = [value for value in found if value is not None]
    assert given_ones == sorted(given_ones)


@settings(deadline=None)
@given(st.lists(times, max_size=5), st.randoms())
def test_pooling_does_not_depend_on_the_order_of_replays(
    replays: list[Times], random: Random
) -> None:
    shuffled = list(replays)
    random.shuffle(shuffled)
    one, other = stats.pool(replays), stats.pool(shuffled)
    assert len(one) == sum(map(len, replays))
    for q in stats.PERCENTILES:
        assert stats.percentile(one, q) == stats.percentile(other, q)


@pytest.mark.parametrize(
    ("q", "enough"), [(25.0, 14), (50.0, 20), (75.0, 40), (90.0, 100), (99.0, 1000), (99.9, 10_000)]
)
def test_percentile_needs_ten_samples_above_it(q: float, enough: int) -> None:
    assert stats.percentile(np.ones(enough - 1, np.uint64), q) is None
    assert stats.percentile(np.ones(enough, np.uint64), q) == 1.0


def test_maximum_needs_one_sample() -> None:
    assert stats.percentile(np.empty(0, np.uint64), 100.0) is None
    assert stats.percentile(np.array([7], np.uint64), 100.0) == 7.0


def test_percentile_interpolates_between_order_statistics() -> None:
    sample = np.arange(1, 1001, dtype=np.uint64)
    assert stats.percentile(sample, 50.0) == 500.5
    assert stats.percentile(sample, 99.0) == pytest.approx(990.01)


def test_mean_of_nothing_is_none() -> None:
    assert stats.mean(np.empty(0, np.uint64)) is None
    assert stats.mean(np.array([1, 2], np.uint64)) == 1.5


def test_blocks_are_as_many_as_the_samples_carry() -> None:
    replays = [np.full(20, n, np.uint64) for n in range(5)]
    assert stats.block_percentiles(replays, 50.0) == [0.0, 1.0, 2.0, 3.0, 4.0]
    # p90 takes 100 samples: all five replays together, in one block.
    assert len(stats.block_percentiles(replays, 90.0)) == 1
    assert stats.block_percentiles(replays, 99.0) == []
