"""The costliest steps, explained by a real engine: text, token, what the grammar allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_comparison import PLANTED, compared

from llgbench.compare import explain, sides
from llgbench.compare.facts import Step
from llgbench.compare.side import Side
from llgbench.inputs import case_file
from llgbench.llama.vocab import open_vocab
from llgbench.measure import runner

CASE, VOCAB = "json-tool-call", "llama-spm"


@pytest.fixture(scope="module")
def wheel() -> Side:
    return sides.resolve("wheel", lambda _: None)


def test_the_costliest_step_is_the_planted_one() -> None:
    first, second, *_ = compared().costliest
    assert {first.step, second.step} == {PLANTED}
    assert {first.case, second.case} == {"a", "b"}
    assert first.head / first.base == pytest.approx(1.2, rel=0.02)
    assert first.allowed is None  # nobody was asked


@pytest.mark.usefixtures("_vocabs_here")
def test_a_step_is_explained_by_the_text_and_the_engine(wheel: Side) -> None:
    loaded = case_file.load(CASE)
    with open_vocab(VOCAB) as vocab:
        trace = runner.traces_of(loaded, vocab)[0]
        pieces = [vocab.table("token_to_piece").tokens[t].decode() for t in trace.tolist()]
    text = loaded.texts[0]
    asked = [Step(CASE, VOCAB, text.name, at, 1.0, 2.0) for at in (0, len(trace) // 2, len(trace))]
    first, middle, last = explain.explained(asked, wheel, "greedy_tokenize")
    assert (first.so_far, first.token) == ("", pieces[0])
    assert "{" in first.expects
    assert not first.accepting
    whole = "".join(pieces[: len(trace) // 2])
    assert whole.endswith(middle.so_far)
    assert middle.so_far
    assert middle.token == pieces[len(trace) // 2]
    assert middle.allowed
    # Behind the text's last token the grammar may end, and the trace has only the end token left.
    assert last.token == ""
    assert last.accepting
    assert all((s.base, s.head) == (1.0, 2.0) for s in (first, middle, last))


def test_bytes_are_ranges_a_reader_understands() -> None:
    assert explain.first_bytes(set(b'"0123456789')) == '" 0-9'
    assert explain.first_bytes(set(b" \nab")) == "newline space a b"
    assert explain.first_bytes({0xC3, ord("x"), 0}) == "\\x00 x non-ASCII"
    assert explain.first_bytes(set(range(256))) == "any byte"
    assert explain.first_bytes(set()) == ""


@given(st.sets(st.integers(0, 255)))
def test_bytes_fit_a_cell(found: set[int]) -> None:
    shown = explain.first_bytes(found)
    assert len(shown) < 200
    assert shown.isprintable()
