from __future__ import annotations

import gc

import numpy as np
import pytest
from conftest import ROOT, Lab

from llgbench.engines.engine import Engine, Tokenizer
from llgbench.errors import UnavailableError
from llgbench.inputs.variant import REFERENCE, VARIANTS, get
from llgbench.llama import bridge, vocab
from llgbench.llama.vocab import Vocab

NOT_EXACT = ("baichuan", "bert-bge", "llama-spm", "nomic-bert-moe", "phi-3")
STOCK = [name for name, variant in VARIANTS.items() if not variant.fallback]


def test_which_tokenizers_are_byte_exact(every_vocab: Vocab) -> None:
    assert every_vocab.is_byte_exact == (every_vocab.name not in NOT_EXACT)


def test_which_variants_go_without_a_tokenize_fn(every_vocab: Vocab) -> None:
    name = every_vocab.name
    found = {v.name for v in VARIANTS.values() if bridge.is_greedy(every_vocab, v)}
    if name not in NOT_EXACT:
        assert found == set()
    elif every_vocab.sentinel is not None:
        assert found == {"greedy_tokenize", "greedy_lexeme_fallback"}
    else:
        assert found == {"greedy_tokenize", "greedy_lexeme_fallback", "sentinel"}
    assert bridge.is_greedy(every_vocab, REFERENCE)


@pytest.mark.parametrize("name", STOCK)
@pytest.mark.parametrize("vocab_name", ["llama-spm", "llama-bpe", "bert-bge"])
def test_a_tokenizer_of_each_variant(lab: Lab, name: str, vocab_name: str) -> None:
    tokenizer = lab.tokenizer(vocab_name, name)
    opened = lab.vocab(vocab_name)
    assert tokenizer.n_tokens == opened.n_tokens
    assert tokenizer.eos == opened.eos
    assert tokenizer.forces != bridge.is_greedy(opened, get(name))
    assert tokenizer.build_ns > 0


def test_only_a_tokenizer_that_forces_forces(lab: Lab) -> None:
    for name in ("token_to_piece", "greedy_tokenize", "sentinel"):
        tokenizer = lab.tokenizer("llama-spm", name)
        with tokenizer.matcher('start: "hello world"') as matcher:
            assert bool(matcher.forced()) == tokenizer.forces


def test_the_sentinel_forces_the_right_bytes(lab: Lab) -> None:
    opened = lab.vocab("llama-spm")
    with lab.tokenizer("llama-spm", "sentinel").matcher('start: "hello world"') as matcher:
        assert opened.spell(np.array(matcher.forced(), np.uint32)) == b"hello world"


def test_a_stock_engine_has_no_fallback_to_offer(wheel: Engine, lab: Lab) -> None:
    with pytest.raises(UnavailableError, match=r"has no greedy lexeme fallback") as caught:
        bridge.build(wheel, lab.vocab("llama-spm"), get("greedy_lexeme_fallback"))
    assert "\n" not in str(caught.value)
    assert bridge.options(wheel, get("greedy_lexeme_fallback")) == {}
    assert bridge.options(wheel, get("baseline")) == {}


def test_a_tokenizer_keeps_its_vocab_alive(wheel: Engine, lab: Lab) -> None:
    """llguidance calls back into llama.cpp for as long as a matcher lives."""
    tokenizer = bridge.build(wheel, vocab.open_vocab("llama-spm", ROOT), get("baseline"))
    matcher = tokenizer.matcher('start: "hello world"')
    del tokenizer
    gc.collect()
    allowed = matcher.allowed()
    assert allowed is not None
    assert allowed.tolist() == [22172]
    matcher.close()


def test_the_byte_tokenizer_is_bytes(byte_tokenizer: Tokenizer) -> None:
    assert byte_tokenizer.n_tokens == 257
    assert byte_tokenizer.eos == 256
    with byte_tokenizer.matcher('start: "a" | /[\\x80-\\x82]/ | "b"?') as matcher:
        allowed = matcher.allowed()
    assert allowed is not None
    # A regex is of characters: \x80 is the two bytes 0xc2 0x80.
    assert allowed.tolist() == [ord("a"), ord("b"), 0xC2, 256]
