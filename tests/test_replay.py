from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import faulty_engine
import numpy as np
import numpy.typing as npt
import pytest
from conftest import ROOT, Lab
from hypothesis import given, settings
from hypothesis import strategies as st
from llgbench._native import lib

from llgbench.engines.engine import INVALID_TOKEN, Engine, Matcher, Tokenizer, byte_tokenizer, load
from llgbench.errors import GrammarError
from llgbench.inputs import case_file
from llgbench.measure.replay import End, Op, replay, with_end
from llgbench.measure.rounds import Rounds, Samples, Subject, measure
from llgbench.records import stats

OPEN = "start: /[a-c]+/"  # may always go on
CLOSED = 'start: "ab"'  # ends by itself
MASK_OPS = (Op.MASK, Op.CACHED)
FULL = lib.LB_STEP_ALLOWED | lib.LB_STEP_CONSUMED | lib.LB_STEP_TIMED


def ids(data: bytes) -> npt.NDArray[np.uint32]:
    return np.frombuffer(data, np.uint8).astype(np.uint32)


@pytest.fixture
def open_matcher(byte_tokenizer: Tokenizer) -> Iterator[Matcher]:
    with byte_tokenizer.matcher(OPEN) as matcher:
        yield matcher


# ---- how a replay ends ----


@pytest.mark.parametrize("op", Op)
def test_a_whole_trace(open_matcher: Matcher, op: Op) -> None:
    done = replay(open_matcher, ids(b"abcab"), op, facts=True)
    assert done.end is End.WHOLE
    assert len(done.steps) == len(done.op_ns) == len(done.consume_ns) == len(done.tbm_ns) == 5
    assert done.consumed == 5
    assert (done.op_ns > 0).all()
    assert (done.consume_ns > 0).all()
    assert done.tbm_ns.tolist() == (done.op_ns + done.consume_ns).tolist()
    assert done.inside_ns >= int(done.tbm_ns.sum()) - 5
    assert done.wall_ns > 0
    assert open_matcher.is_accepting()


@pytest.mark.parametrize("op", Op)
def test_a_rejected_token_is_not_handed_over(open_matcher: Matcher, op: Op) -> None:
    done = replay(open_matcher, ids(b"abxab"), op)
    assert done.end is End.REJECTED
    assert len(done.steps) == 3
    assert done.consumed == 2
    assert done.steps["consume_ns"][2] == 0
    assert open_matcher.error() is None
    assert open_matcher.is_accepting()
    # so it goes on from there, or from the start
    assert replay(open_matcher, ids(b"cc"), op).end is End.WHOLE
    assert replay(open_matcher, ids(b"abx"), op, reset=True).end is End.REJECTED
    assert replay(open_matcher, ids(b"abc"), op, reset=True).end is End.WHOLE


@pytest.mark.parametrize("op", Op)
def test_a_matcher_that_finishes_before_the_trace(byte_tokenizer: Tokenizer, op: Op) -> None:
    with byte_tokenizer.matcher(CLOSED) as matcher:
        done = replay(matcher, ids(b"abab"), op)
        assert done.end is End.STOPPED
        assert len(done.steps) == done.consumed == 2
        # the token that ends the grammar was consumed: a time of 0 is none
        assert (done.consume_ns > 0).all()
        assert matcher.is_stopped()
        again = replay(matcher, ids(b"ab"), op)
        assert (again.end, len(again.steps)) == (End.STOPPED, 0)
        assert replay(matcher, ids(b"ab"), op, reset=True).end is End.WHOLE


@pytest.mark.parametrize("op", Op)
def test_the_end_token_ends(open_matcher: Matcher, op: Op) -> None:
    tokens = with_end(ids(b"ab"), open_matcher.tokenizer)
    assert tokens.dtype == np.uint32
    assert tokens.tolist() == [97, 98, 256]
    done = replay(open_matcher, tokens, op)
    assert done.end is End.WHOLE
    assert done.consumed == 3
    assert open_matcher.is_stopped()


def test_no_end_token_to_add(wheel: Engine) -> None:
    data = np.frombuffer(b"ab", np.uint8)
    with Tokenizer(wheel, np.ones(2, np.uint32), data, INVALID_TOKEN) as tokenizer:
        assert with_end(ids(b"\0"), tokenizer).tolist() == [0]


@pytest.mark.parametrize("op", Op)
def test_nothing_to_replay(open_matcher: Matcher, op: Op) -> None:
    done = replay(open_matcher, np.empty(0, np.uint32), op)
    assert (done.end, len(done.steps), done.inside_ns) == (End.WHOLE, 0, 0)


@pytest.mark.parametrize("op", Op)
def test_the_error_state(byte_tokenizer: Tokenizer, op: Op) -> None:
    with byte_tokenizer.matcher(OPEN) as matcher:
        assert not matcher.consume(ord("x"))
        done = replay(matcher, ids(b"ab"), op, reset=True)
        assert (done.end, len(done.steps)) == (End.RESET_ERROR, 0)
        done = replay(matcher, ids(b"ab"), op)
        assert done.end is End.STOPPED
        assert len(done.op_ns) == 0


@pytest.mark.parametrize("op", Op)
def test_a_token_that_does_not_exist(byte_tokenizer: Tokenizer, op: Op) -> None:
    """validate_tokens fails on it and spoils the matcher: an error, no rejection."""
    with byte_tokenizer.matcher(OPEN) as matcher:
        done = replay(matcher, np.array([97, 300], np.uint32), op)
        wanted = End.MASK_ERROR if op is Op.VALIDATE else End.CONSUME_ERROR
        assert done.end is wanted
        assert matcher.error() is not None
        assert replay(matcher, ids(b"a"), op, reset=True).end is End.RESET_ERROR


def test_a_mask_that_fails(lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    """The prefix space of llama-spm's tokenizer before forced JSON: llguidance fails inside."""
    subject = case_file.load("json-enum", ROOT)
    trace = lab.vocab("llama-spm").trace(subject.texts[0].data)
    with lab.tokenizer("llama-spm", "token_to_piece").matcher(subject.lark()) as matcher:
        done = replay(matcher, trace, facts=True)
        assert done.end is End.MASK_ERROR
        assert len(done.steps) == 1
        assert len(done.op_ns) == len(done.consume_ns) == len(done.tbm_ns) == 0
        assert done.inside_ns > 0
        assert "panic" in (matcher.error() or "")
        again = replay(matcher, trace, reset=True)
        assert (again.end, len(again.steps)) == (End.RESET_ERROR, 0)
    assert capfd.readouterr() == ("", "")


def test_a_right_token_that_a_forced_mask_leaves_out(lab: Lab) -> None:
    """Forced, the mask holds ` hello` alone; the trace's `h` is valid all the same and is taken."""
    trace = lab.vocab("llama-spm").trace(b"hello world")
    tokenizer = lab.tokenizer("llama-spm", "token_to_piece")
    with tokenizer.matcher('start: "hello world"') as matcher:
        done = replay(matcher, trace, facts=True)
        assert done.end is End.WHOLE
        assert done.steps["allowed"][0] == 1
        assert not done.steps["flags"][0] & lib.LB_STEP_ALLOWED
        assert done.steps["flags"][0] & lib.LB_STEP_CONSUMED
        assert replay(matcher, trace, reset=True).end is End.WHOLE


def test_an_errored_subject_has_no_warm_samples(lab: Lab) -> None:
    subject = case_file.load("json-enum", ROOT)
    trace = lab.vocab("llama-spm").trace(subject.texts[0].data)
    subjects = {
        name: Subject(lab.tokenizer("llama-spm", name), subject.lark())
        for name in ("token_to_piece", "greedy_tokenize")
    }
    found = measure(subjects, [trace], Rounds(1, 2, 1))
    assert found["token_to_piece"].warm_mask_ns == []
    assert found["token_to_piece"].cached_mask_ns == []
    assert found["token_to_piece"].first_mask_ns == []
    assert len(found["greedy_tokenize"].warm_mask_ns) == 2


# ---- what a replay knows ----


@pytest.mark.parametrize("vocab_name", ["llama-spm", "llama-bpe"])
@pytest.mark.parametrize("variant", ["baseline", "token_to_piece", "greedy_tokenize"])
def test_the_facts_are_those_of_the_masks(lab: Lab, vocab_name: str, variant: str) -> None:
    subject = case_file.load("json-enum", ROOT)
    tokenizer = lab.tokenizer(vocab_name, variant)
    seen: dict[int, bytes] = {}
    for text in subject.texts:
        trace = lab.vocab(vocab_name).trace(text.data)
        with (
            tokenizer.matcher(subject.lark()) as timed,
            tokenizer.matcher(subject.lark()) as slow,
        ):
            done = replay(timed, trace, facts=True)
            for step, token in zip(done.steps, trace, strict=False):
                mask = slow.mask()
                if mask is None:  # token_to_piece on llama-spm: see test_a_mask_that_fails
                    assert done.end is End.MASK_ERROR
                    break
                assert step["allowed"] == np.bitwise_count(mask).sum()
                holds = bool(mask[token // 32] >> np.uint32(token % 32) & 1)
                assert bool(step["flags"] & lib.LB_STEP_ALLOWED) == holds
                assert seen.setdefault(int(step["mask_hash"]), mask.tobytes()) == mask.tobytes()
                if step["flags"] & lib.LB_STEP_CONSUMED:
                    assert slow.consume(int(token))
            assert done.forced == int((done.steps["allowed"] == 1).sum())
    assert len(set(seen.values())) == len(seen), "one mask, two hashes"


def test_no_facts_unless_asked(open_matcher: Matcher) -> None:
    done = replay(open_matcher, ids(b"abc"))
    assert not done.steps["allowed"].any()
    assert not done.steps["mask_hash"].any()
    assert (done.steps["flags"] == FULL).all()


@pytest.mark.parametrize("op", [op for op in Op if op not in MASK_OPS])
def test_no_facts_without_a_mask(open_matcher: Matcher, op: Op) -> None:
    done = replay(open_matcher, ids(b"abc"), op, facts=True)
    assert not done.steps["allowed"].any()
    assert not done.steps["mask_hash"].any()


@pytest.mark.parametrize("op", [op for op in Op if op is not Op.MASK])
@pytest.mark.parametrize("name", ["json-enum", "listed", "arithmetic", "lazy-stop"])
@pytest.mark.parametrize("variant", ["baseline", "greedy_tokenize"])
def test_every_operation_leaves_the_state_of_a_mask(
    lab: Lab, op: Op, name: str, variant: str
) -> None:
    subject = case_file.load(name, ROOT)
    tokenizer = lab.tokenizer("llama-bpe", variant)
    for text in subject.texts[:2]:
        trace = lab.vocab("llama-bpe").trace(text.data)
        with (
            tokenizer.matcher(subject.lark()) as one,
            tokenizer.matcher(subject.lark()) as other,
        ):
            a, b = replay(one, trace), replay(other, trace, op)
            assert (a.end, a.consumed, len(a.steps)) == (b.end, b.consumed, len(b.steps))
            assert one.is_accepting() == other.is_accepting()
            assert one.is_stopped() == other.is_stopped()
            x, y = one.mask(), other.mask()
            assert (x is None) == (y is None)
            assert x is None or y is None or np.array_equal(x, y)


@given(text=st.text("abcx", max_size=12), cut=st.integers(0, 12))
def test_a_replay_may_come_in_two_parts(byte_tokenizer: Tokenizer, text: str, cut: int) -> None:
    tokens = ids(text.encode())
    with byte_tokenizer.matcher(OPEN) as one, byte_tokenizer.matcher(OPEN) as two:
        whole = replay(one, tokens, facts=True)
        first = replay(two, tokens[:cut], facts=True)
        parts = [first]
        if first.end is End.WHOLE:
            parts.append(replay(two, tokens[cut:], facts=True))
        for fact in ("allowed", "mask_hash", "flags"):
            joined = np.concatenate([part.steps[fact] for part in parts])
            assert joined.tolist() == whole.steps[fact].tolist()


def test_other_integers_are_read_for_what_they_are(open_matcher: Matcher) -> None:
    for kind in (np.uint8, np.int32, np.int64):
        tokens = np.frombuffer(b"abc", np.uint8).astype(kind)
        done = replay(open_matcher, tokens, reset=True)  # type: ignore[arg-type]
        assert (done.end, done.consumed) == (End.WHOLE, 3)
    assert replay(open_matcher, ids(b"axbxcx")[::2], reset=True).consumed == 3


def test_a_closed_matcher_is_not_replayed(byte_tokenizer: Tokenizer) -> None:
    matcher = byte_tokenizer.matcher(OPEN)
    matcher.close()
    with pytest.raises(ValueError, match="closed"):
        replay(matcher, ids(b"ab"))


# ---- measure ----


@pytest.mark.parametrize("wrong", [{"cold": 0}, {"warm": -1}, {"cached": -1}, {"sibling": -1}])
def test_rounds_that_measure_nothing(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least one cold round"):
        Rounds(**wrong)


def test_a_cold_round_has_one_sibling_at_most() -> None:
    with pytest.raises(ValueError, match="one replay of a sibling at most"):
        Rounds(cold=2, sibling=3)


@pytest.mark.parametrize("sibling", [0, 1, 2])
def test_siblings(byte_tokenizer: Tokenizer, sibling: int) -> None:
    """One per text and round, of the text after each; they are as long as the text's own replay."""
    subjects = {"a": Subject(byte_tokenizer, OPEN), "b": Subject(byte_tokenizer, CLOSED)}
    traces = [ids(b"a"), ids(b"abc"), ids(b"")]
    for name, samples in measure(subjects, traces, Rounds(2, 1, 0, sibling)).items():
        assert samples.fault == ""
        cold = [len(times) for times in samples.cold_mask_ns[:3]]
        assert cold == ([1, 3, 0] if name == "a" else [1, 2, 0])
        wanted = [*cold[1:], cold[0]] * sibling
        assert [len(times) for times in samples.sibling_mask_ns] == wanted
        assert len(samples.sibling_consume_ns) == len(samples.sibling_mask_ns)
        assert len(samples.warm_mask_ns) == 3  # and apart from the other kinds


def test_one_text_has_no_sibling(byte_tokenizer: Tokenizer) -> None:
    subjects = {"a": Subject(byte_tokenizer, OPEN)}
    assert measure(subjects, [ids(b"ab")], Rounds(2, 0, 0, 2))["a"].sibling_mask_ns == []


def test_an_errored_subject_has_no_siblings(lab: Lab) -> None:
    subject = case_file.load("json-enum", ROOT)
    traces = [lab.vocab("llama-spm").trace(text.data) for text in subject.texts[:2]]
    tokenizer = lab.tokenizer("llama-spm", "token_to_piece")
    found = measure({"a": Subject(tokenizer, subject.lark())}, traces, Rounds(1, 1, 0, 1))["a"]
    assert (found.sibling_mask_ns, found.warm_mask_ns, found.fault) == ([], [], "")


def test_a_clone_stands_where_its_elder_does(byte_tokenizer: Tokenizer) -> None:
    with byte_tokenizer.matcher(OPEN) as elder:
        replay(elder, ids(b"abc"))
        assert elder.reset()
        with elder.clone() as clone, byte_tokenizer.matcher(OPEN) as fresh:
            one, other = (replay(m, ids(b"cabx"), facts=True) for m in (clone, fresh))
            for fact in ("allowed", "mask_hash", "flags"):
                assert one.steps[fact].tolist() == other.steps[fact].tolist()
            assert replay(elder, ids(b"b")).end is End.WHOLE  # the clone's tokens are not its


LIES = {
    "reset does nothing": ("matcher_reset", "return 0;", "on a matcher that was reset"),
    "reset fails": ("matcher_reset", "return 1;", "RESET_ERROR"),
    "nothing": ("clone_matcher", "return TRUTH;", ""),
    "masks are lost": ("matcher_get_mask", "static int n; return n++ < 4 ? TRUTH : 0;", "ERROR"),
}


@pytest.mark.parametrize("what", LIES)
def test_a_replay_that_is_not_as_the_first(tmp_path: Path, what: str) -> None:
    name, body, why = LIES[what]
    engine = load(faulty_engine.build(tmp_path, f"llg_{name}", body))
    with byte_tokenizer(engine) as tokenizer:
        subjects = {"a": Subject(tokenizer, OPEN)}
        traces = [with_end(ids(data), tokenizer) for data in (b"ab", b"abc")]
        samples = measure(subjects, traces, Rounds(1, 1, 0, 1))["a"]
    assert why in samples.fault
    assert bool(samples.fault) == bool(why)


@pytest.mark.parametrize("body", ["return 0;", "static int n; return n++ ? 0 : TRUTH;"])
def test_a_mask_that_is_null(tmp_path: Path, body: str) -> None:
    engine = load(faulty_engine.build(tmp_path, "llg_matcher_get_mask", body))
    with byte_tokenizer(engine) as tokenizer, tokenizer.matcher(OPEN) as matcher:
        done = replay(matcher, ids(b"abc"), facts=True)
        assert done.end is End.MASK_ERROR
        assert len(done.op_ns) == len(done.steps) - 1
        assert matcher.mask() is None


@pytest.mark.parametrize("op", [Op.MASK, Op.CACHED, Op.VALIDATE, Op.FORCED, Op.ROLLBACK])
def test_a_status_that_cannot_be(tmp_path: Path, op: Op) -> None:
    name = {Op.VALIDATE: "validate_tokens", Op.FORCED: "compute_ff_tokens", Op.ROLLBACK: "rollback"}
    # Validity is also asked for where a token is not in a mask; only too many are impossible.
    engine = load(
        faulty_engine.build(tmp_path, f"llg_matcher_{name.get(op, 'compute_mask')}", "return 1000;")
    )
    with byte_tokenizer(engine) as tokenizer, tokenizer.matcher(OPEN) as matcher:
        done = replay(matcher, ids(b"abc"), op)
        assert done.end is End.MASK_ERROR
        assert (len(done.steps), len(done.op_ns)) == (1, 0)


@settings(max_examples=20)
@given(cold=st.integers(1, 4), warm=st.integers(0, 7), cached=st.integers(0, 5))
def test_each_subject_gets_its_share(
    byte_tokenizer: Tokenizer, cold: int, warm: int, cached: int
) -> None:
    subjects = {
        "a": Subject(byte_tokenizer, OPEN),
        "b": Subject(byte_tokenizer, CLOSED),
        "c": Subject(byte_tokenizer, 'start: "x"'),
    }
    traces = [ids(b"ab"), ids(b"abc"), ids(b"")]
    found = measure(subjects, traces, Rounds(cold, warm, cached))
    assert list(found) == ["a", "b", "c"]
    for samples in found.values():
        assert len(samples.compile_ns) == cold * len(traces)
        assert len(samples.first_mask_ns) == cold * 2  # nothing is masked on an empty trace
        assert len(samples.cold_mask_ns) == len(samples.cold_consume_ns) == cold * len(traces)
        assert len(samples.warm_mask_ns) == len(samples.warm_consume_ns) == warm * len(traces)
        assert len(samples.cached_mask_ns) == cached * len(traces)
        assert len(samples.allowed) == len(samples.mask_hash) == len(traces)
        assert samples.inside_ns >= sum(samples.compile_ns)


def test_rounds_go_on_until_the_masks_carry_a_p99(byte_tokenizer: Tokenizer) -> None:
    subjects = {"a": Subject(byte_tokenizer, OPEN), "b": Subject(byte_tokenizer, CLOSED)}
    traces = [ids(b"ab"), ids(b"b")]
    found = measure(subjects, traces, Rounds(cold=2, warm=4, cached=2, sibling=2, seconds=60))
    masks = {name: sum(map(len, samples.cold_mask_ns)) for name, samples in found.items()}
    fewest = min(masks, key=lambda name: masks[name])
    last = sum(map(len, found[fewest].cold_mask_ns[-len(traces) :]))
    # Enough, and not one round more than it takes; every round alike.
    assert masks[fewest] - last < stats.needed(99) <= masks[fewest]
    for samples in found.values():
        assert len(samples.warm_mask_ns) == 2 * len(samples.cold_mask_ns)


def test_rounds_stop_at_their_time_and_where_nothing_is_measured() -> None:
    rounds = Rounds(cold=2, seconds=10)
    assert rounds.go_on(1, 0, 99)
    assert rounds.go_on(2, 6, 9.9)
    assert not rounds.go_on(2, 6, 10)
    assert not rounds.go_on(2, 1000, 1)
    assert not rounds.go_on(2, 0, 1)
    assert not Rounds(cold=2).go_on(2, 6, 0)


def test_what_measure_collects(byte_tokenizer: Tokenizer) -> None:
    subjects = {"open": Subject(byte_tokenizer, OPEN), "closed": Subject(byte_tokenizer, CLOSED)}
    found = measure(subjects, [ids(b"abc")], Rounds(2, 3, 1))
    assert [len(a) for a in found["open"].cold_mask_ns] == [3, 3]
    assert [len(a) for a in found["closed"].cold_mask_ns] == [2, 2]  # it ends by itself
    assert [len(a) for a in found["open"].warm_consume_ns] == [3, 3, 3]
    assert found["open"].first_mask_ns == [int(a[0]) for a in found["open"].cold_mask_ns]
    assert [a.tolist() for a in found["open"].allowed] == [[3, 4, 4]]
    assert [a.tolist() for a in found["closed"].allowed] == [[1, 1]]
    for name in ("allowed", "mask_hash", "cold_mask_ns", "cached_mask_ns"):
        assert all(a.dtype == np.uint64 for a in getattr(found["open"], name))


def test_inside_holds_every_sample(byte_tokenizer: Tokenizer) -> None:
    samples = measure({"a": Subject(byte_tokenizer, OPEN)}, [ids(b"abcabc")], Rounds(2, 2, 1))["a"]

    def total(s: Samples) -> int:
        lists = (
            s.cold_mask_ns, s.cold_consume_ns, s.warm_mask_ns, s.warm_consume_ns, s.cached_mask_ns
        )  # fmt: skip
        return sum(s.compile_ns) + sum(int(a.sum()) for arrays in lists for a in arrays)

    assert samples.inside_ns >= total(samples) - 100  # each time is rounded by itself


def test_a_grammar_that_does_not_compile(byte_tokenizer: Tokenizer) -> None:
    subjects = {"good": Subject(byte_tokenizer, OPEN), "bad": Subject(byte_tokenizer, "start: (")}
    with pytest.raises(GrammarError):
        measure(subjects, [ids(b"a")], Rounds(1, 0, 0))
