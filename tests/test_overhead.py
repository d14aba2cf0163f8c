"""The overheads of the fallback: what they are made of, and that the shadow changes no answer."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest

from llgbench.engines import build, counters
from llgbench.errors import UnavailableError
from llgbench.fallback import heap, memory, overhead
from llgbench.fallback.pending import STATES, Reading
from llgbench.fallback.states import STRATEGIES, matchers_of, set_threshold
from llgbench.inputs import case_file
from llgbench.inputs.variant import REFERENCE_FALLBACK, get
from llgbench.measure.replay import replay
from llgbench.measure.runner import Workbench

built = pytest.mark.skipif(
    any(build.cached(flavour) is None for flavour in ("stock", "fallback")),
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
def test_the_curve_has_both_strategies() -> None:
    points = list(overhead.curve((64, 128), replays=1))
    assert [(p.n, p.strategy) for p in points] == [
        (64, "shadow"), (64, "replay"), (128, "shadow"), (128, "replay"),
    ]  # fmt: skip
    assert all(p.costliest_ns >= p.median_ns > 0 for p in points)
    # The costliest step's own work, and everything it needs fetched anew.
    assert all(p.emptied_ns > p.median_ns for p in points)


@built
def test_the_strategy_changes_no_mask() -> None:
    _, engine = overhead.engines()
    subject = case_file.load("checkpoint@256")
    grammar = subject.lark({engine.fallback_option or "": True})
    with Workbench("llama-spm") as bench:
        tokenizer = bench.tokenizer(engine, get("greedy_lexeme_fallback"))
        for text in subject.texts:
            trace = bench.vocab.trace(text.data)
            hashes = []
            for bytes_ in STRATEGIES.values():
                with tokenizer.matcher(grammar) as matcher:
                    set_threshold(matcher, bytes_)
                    hashes.append(replay(matcher, trace, facts=True).steps["mask_hash"])
            assert np.array_equal(hashes[0], hashes[1])


def test_without_engines_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("LLGBENCH_CACHE", str(tmp_path))
    with pytest.raises(UnavailableError, match="llgbench engine build"):
        overhead.engines()


# ---- states with a boundary pending ----


@built
def test_only_the_grammar_with_both_readings_has_a_boundary_pending() -> None:
    _, engine = overhead.engines()
    with Workbench("llama-spm") as bench:
        for state in STATES:
            with ExitStack() as stack:
                work = {
                    reading: counters.fallback_work(matcher)
                    for reading, matcher in matchers_of(state, engine, bench, stack).items()
                }
            # Once more than 64 bytes are between, the other reading is kept in step.
            read = {
                reading: of["reread_bytes"] + of["synced_bytes"]
                for reading, of in work.items()
                if of is not None
            }
            # In an f-string a token of the mask itself can open a boundary and close it: `{{{x`,
            # of which the last brace and the x are read again.
            few = 2 if state.name == "fstring" else 0
            assert read["longer"] <= few < read["both"], state.name


@built
def test_a_pending_mask_holds_what_either_reading_allows() -> None:
    _, engine = overhead.engines()
    seen: dict[str, dict[Reading, set[int]]] = {}
    with Workbench("llama-spm") as bench:
        for state in STATES:
            allowed: dict[Reading, set[int]] = {}
            with ExitStack() as stack:
                for reading, matcher in matchers_of(state, engine, bench, stack).items():
                    tokens = matcher.allowed()
                    assert tokens is not None
                    allowed[reading] = set(tokens.tolist())
            assert allowed["longer"] | allowed["other"] <= allowed["both"], state.name
            seen[state.name] = allowed
    assert seen["listed"]["longer"] < seen["listed"]["both"]
    assert seen["fstring"]["other"] < seen["fstring"]["both"]


@built
def test_pending_masks_are_timed_in_turn() -> None:
    found = {times.state: times for times in overhead.pending("llama-spm", rounds=3)}
    assert list(found) == [state.name for state in STATES]
    listed = found["listed"]
    assert 0 < listed.both_ns < 2**63
    assert listed.over_costlier == listed.both_ns / max(listed.longer_ns, listed.other_ns)


# ---- memory ----


def test_the_heap_in_use_grows_by_what_is_allocated_and_shrinks_again() -> None:
    before = heap.in_use()
    block = np.ones(1 << 24, np.uint8)
    assert (1 << 24) <= heap.in_use() - before < (1 << 24) + (1 << 20)
    del block
    assert heap.in_use() - before < 1 << 20


@built
def test_a_pending_boundary_holds_as_much_memory_whatever_its_length() -> None:
    _, engine = overhead.engines()
    short, long = memory.measure(engine, (256, 4096))
    assert long.off > 4 * short.off  # the stack, with the option or without
    assert short.beyond > 0
    assert abs(long.beyond - short.beyond) < 4096


# ---- work counters by step ----


@built
def test_work_by_step_adds_up_and_knows_the_fallback() -> None:
    _, engine = overhead.engines()
    option = f'%llguidance {{"{engine.fallback_option}": true}}\n'
    grammar = STATES[0].grammars["both"]
    with Workbench("llama-spm") as bench:
        tokenizer = bench.tokenizer(engine, REFERENCE_FALLBACK)
        trace = bench.vocab.trace(b"listed")
        with tokenizer.matcher(option + grammar) as matcher:
            steps = counters.by_step(matcher, trace)
        with tokenizer.matcher(option + grammar) as matcher:
            sums = counters.collect(matcher, trace)
        with tokenizer.matcher(STATES[0].grammars["longer"]) as matcher:
            off = counters.by_step(matcher, bench.vocab.trace(b"listen"))
    assert steps is not None
    assert off is not None
    assert sums == {name: steps[name].sum() for name in counters.NAMES}
    assert len(steps["rows"]) == len(trace)
    assert steps["recoveries"].sum() >= 1
    assert not any(off[name].any() for name in counters.FALLBACK_NAMES)
