"""Named differences: which tokens a class explains, and where."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Lab
from hypothesis import given
from hypothesis import strategies as st

from llgbench.peers import classes
from llgbench.peers.classes import AFTER_C2, N_STATES, NEXT, NUMBER, OUTSIDE, STRING

NAMES = [known.name for known in classes.CLASSES]


def state_after(data: bytes, state: int = OUTSIDE) -> int:
    for byte in data:
        state = NEXT[state][byte]
    return state


@given(st.text())
def test_a_string_of_json_ends_where_it_ends(text: str) -> None:
    import json

    written = json.dumps(text).encode()
    assert state_after(written) == OUTSIDE
    assert all(state_after(written[:n]) not in (OUTSIDE, NUMBER) for n in range(1, len(written)))


@given(st.binary(), st.integers(0, N_STATES - 1))
def test_every_byte_leads_somewhere(data: bytes, state: int) -> None:
    assert 0 <= state_after(data, state) < N_STATES


@pytest.fixture(scope="module")
def sets(lab: Lab) -> np.ndarray:
    return classes.sets(lab.vocab("llama-bpe"), json=True)


def explained(lab: Lab, sets: np.ndarray, token: bytes, state: int) -> set[str]:
    number = lab.vocab("llama-bpe").table("token_to_piece").tokens.index(token)
    words = sets[state]
    return {
        name for name, of_class in zip(NAMES, words, strict=True)
        if of_class[number // 32] >> (number % 32) & 1
    }  # fmt: skip


def test_what_a_token_is_explained_by(lab: Lab, sets: np.ndarray) -> None:
    for token, state, names in (
        (b"\\", STRING, {"json-escapes"}),
        (b"\\", OUTSIDE, set()),
        (b" the", STRING, set()),
        (b" ", OUTSIDE, {"white-space"}),
        (b" the", OUTSIDE, {"white-space"}),
        (b'"', STRING, set()),
        (b"1", OUTSIDE, {"numbers"}),
        (b"1", NUMBER, {"numbers"}),
        (b"1", STRING, set()),
        (b"e", OUTSIDE, set()),
        (b"\x7f", STRING, {"controls"}),
        (b"\x7f", OUTSIDE, set()),
        (b"\xc2\x85", STRING, {"controls"}),
        (b"\xc2\xa0", STRING, set()),
        (b"\xc2", STRING, {"partial-utf8"}),
        (b"\x85", STRING, {"partial-utf8"}),
        (b"\x85", AFTER_C2, {"controls", "partial-utf8"}),
        (b"\xa0", AFTER_C2, {"partial-utf8"}),
        (b"\x00", STRING, set()),
        (b"\xc3", STRING, {"partial-utf8"}),
    ):
        assert explained(lab, sets, token, state) == names, (token, state)


def test_lark_has_no_classes(lab: Lab) -> None:
    assert not classes.sets(lab.vocab("llama-bpe"), json=False).any()


def test_masks_are_compared_over_text_and_the_end(lab: Lab) -> None:
    vocab = lab.vocab("llama-bpe")
    table = vocab.table("token_to_piece")
    bits = np.unpackbits(classes.text_tokens(vocab).view(np.uint8), bitorder="little")
    for token in range(vocab.n_tokens):
        text = table.lens[token] > 0 and not table.marked[token]
        assert bits[token] == (text or token == vocab.eos), token
    assert not bits[vocab.n_tokens :].any()
