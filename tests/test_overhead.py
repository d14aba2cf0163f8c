"""The overheads of the fallback: what they are made of, and that the shadow changes no answer."""

from __future__ import annotations

import numpy as np
import pytest

from llgbench import case, engine_build, overhead
from llgbench.errors import UnavailableError
from llgbench.replay import replay
from llgbench.runner import Workbench
from llgbench.variant import get

built = pytest.mark.skipif(
    any(engine_build.cached(flavour) is None for flavour in engine_build.FLAVOURS),
    reason="the engines are not built (llgbench engine build stock fallback)",
)


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    assert overhead._ratio([10, 20, 90], [10, 10, 10]) == 2.0


def test_a_round_is_every_text_once() -> None:
    # Two texts, three rounds each: text a 1 2 3, text b 10 20 30.
    replays = [np.array([n], np.uint64) for n in (1, 2, 3, 10, 20, 30)]
    assert overhead._round_sums(replays, 3) == [11, 22, 33]


@built
def test_ratios_are_of_the_same_work() -> None:
    (found,) = overhead.on_json("llama-spm", rounds=2, cases=("json-tool-call",))
    assert found.case == "json-tool-call"
    for ratio in (found.off_mask, found.off_consume, found.on_mask, found.on_consume):
        assert ratio > 0


@built
def test_the_curve_has_both_strategies_and_puts_the_threshold_back() -> None:
    points = list(overhead.curve((64, 128), replays=1))
    assert [(p.n, p.strategy) for p in points] == [
        (64, "shadow"), (64, "replay"), (128, "shadow"), (128, "replay"),
    ]  # fmt: skip
    assert all(p.dearest_ns >= p.median_ns > 0 for p in points)


@built
def test_the_strategy_changes_no_mask() -> None:
    _, engine = overhead.engines()
    subject = case.load("checkpoint@256")
    grammar = subject.lark({engine.fallback_option or "": True})
    with Workbench("llama-spm") as bench:
        tokenizer = bench.tokenizer(engine, get("greedy_lexeme_fallback"))
        for text in subject.texts:
            trace = bench.vocab.trace(text.data)
            hashes = []
            for threshold in (overhead.THRESHOLD, overhead.REPLAY_ONLY):
                with overhead._threshold(engine, threshold), tokenizer.matcher(grammar) as matcher:
                    hashes.append(replay(matcher, trace, facts=True).steps["mask_hash"])
            assert np.array_equal(hashes[0], hashes[1])


def test_without_engines_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("LLGBENCH_CACHE", str(tmp_path))
    with pytest.raises(UnavailableError, match="llgbench engine build"):
        overhead.engines()
