from __future__ import annotations

import numpy as np
import pytest
from conftest import Lab

from llgbench.errors import UnavailableError
from llgbench.inputs.case import Text
from llgbench.measure.trace import special_tokens, trace_of


@pytest.mark.parametrize("vocab_name", ["llama-bpe", "llama-spm", "gemma-4"])
def test_special_tokens_are_those_without_bytes(lab: Lab, vocab_name: str) -> None:
    vocab = lab.vocab(vocab_name)
    found = special_tokens(vocab)
    table = vocab.table("token_to_piece")
    assert found
    for name, token in found.items():
        assert table.marked[token]
        assert table.tokens[token] == b"\xff" + name.encode()


def test_a_plain_text_is_the_vocabs_own_trace(lab: Lab) -> None:
    vocab = lab.vocab("llama-bpe")
    data = b"<|eot_id|> is text here"
    assert trace_of(Text("t", data), vocab).tolist() == vocab.trace(data).tolist()
    assert not set(special_tokens(vocab).values()) & set(trace_of(Text("t", data), vocab).tolist())


@pytest.mark.parametrize("names", [("<s>", "</s>"), None])
def test_named_tokens_and_exact_bytes_between(lab: Lab, names: tuple[str, ...] | None) -> None:
    vocab = lab.vocab("llama-spm")
    trace = trace_of(Text("t", b"<s>hello world</s> x<s>", special_tokens=names), vocab)
    assert trace.dtype == np.uint32
    assert vocab.spell(trace) == b"\xff<s>hello world\xff</s> x\xff<s>"
    assert trace_of(Text("t", b"", special_tokens=names), vocab).tolist() == []


def test_a_special_token_that_the_vocab_has_not(lab: Lab) -> None:
    with pytest.raises(
        UnavailableError, match=r"vocab llama-spm has no special token '<\|nope\|>'"
    ):
        trace_of(Text("t", b"x", special_tokens=("<|nope|>",)), lab.vocab("llama-spm"))
