"""Ratios of comparable steps alone."""

from __future__ import annotations

from dataclasses import replace

from test_peers_report import FOUND

from llgbench.peers.figures import comparison
from llgbench.peers.results import Pairs


def test_a_ratio_is_of_comparable_steps_of_right_cases_alone() -> None:
    assert comparison(FOUND) == (0.25, "30 of 40")
    assert comparison(replace(FOUND, outcome="accepts invalid")) == (None, None)
    assert comparison(replace(FOUND, outcome="another reading")) == (None, None)
    assert comparison(replace(FOUND, pairs=None)) == (None, None)
    few = replace(FOUND, pairs=Pairs([1] * 5, [2] * 5))
    assert comparison(few) == (None, None)  # too few for a median
