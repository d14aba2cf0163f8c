"""Messages of a comparison's processes: whatever is in them crosses whole."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from llgbench import crossing
from llgbench.compare.messages import Samples
from llgbench.compare.side import Pair

of_times = arrays(np.uint64, st.integers(0, 20), elements=st.integers(0, 2**64 - 1))


@given(st.lists(of_times, max_size=6))
def test_samples_cross_whole(found: list[npt.NDArray[np.uint64]]) -> None:
    again = crossing.decode(crossing.encode(Samples.of(found)), Samples).arrays
    assert len(again) == len(found)
    for one, other in zip(again, found, strict=True):
        assert one.dtype == np.uint64
        np.testing.assert_array_equal(one, other)


def test_a_pair_keeps_its_sides_apart() -> None:
    pair = Pair(1, 2)
    assert (pair.of("base"), pair.of("head")) == (1, 2)
    assert pair.map(str) == Pair("1", "2")
    assert crossing.decode(crossing.encode(pair), Pair[int]) == pair
