"""The native sampler: what it does to candidates, and who frees what."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import Lab
from hypothesis import given
from hypothesis import strategies as st
from llgbench._native import ffi, lib

from llgbench.errors import GrammarError
from llgbench.llama import sampler
from llgbench.llama.sampler import Chain, GrammarSampler, candidates

GRAMMAR = 'start: "a" /[b-d]{1,3}/ "e"'


@pytest.fixture
def grammar(lab: Lab) -> Iterator[GrammarSampler]:
    with GrammarSampler(lab.tokenizer("llama-bpe", "greedy_tokenize"), GRAMMAR) as made:
        yield made


def apply(made: GrammarSampler, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    array, view = candidates(logits)
    sampler.decoder().sampler_apply(made.pointer, array)
    return np.array(view["logit"])


def test_layouts_are_those_of_llama_cpp_python() -> None:
    assert sampler.layout_differences() == []


def test_the_interface_has_the_twelve_functions_of_llama_h() -> None:
    from llama_cpp import llama_cpp as c

    names = [field[0] for field in c.llama_sampler_i._fields_]
    assert names == [name for name, _ in ffi.typeof("llama_sampler_i").fields]
    assert ctypes.sizeof(c.llama_sampler_i) == ffi.sizeof("llama_sampler_i") == 12 * 8


def test_apply_leaves_what_the_matcher_allows(lab: Lab, grammar: GrammarSampler) -> None:
    tokenizer = lab.tokenizer("llama-bpe", "greedy_tokenize")
    with tokenizer.matcher(GRAMMAR) as matcher:
        allowed = matcher.allowed()
    logits = np.random.default_rng(0).normal(size=tokenizer.n_tokens).astype(np.float32)
    after = apply(grammar, logits)
    assert allowed is not None
    assert np.flatnonzero(np.isfinite(after)).tolist() == allowed.tolist()
    assert np.array_equal(after[allowed], logits[allowed])


def test_accept_moves_on_and_reset_returns(lab: Lab, grammar: GrammarSampler) -> None:
    vocab = lab.vocab("llama-bpe")
    zeros = np.zeros(vocab.n_tokens, np.float32)
    first = apply(grammar, zeros)
    token = vocab.byte_token(ord("a"))
    assert token is not None
    sampler.decoder().sampler_accept(grammar.pointer, token)
    second = apply(grammar, zeros)
    b = vocab.byte_token(ord("b"))
    assert b is not None
    assert np.isneginf(first[b])
    assert np.isfinite(second[b])
    from llama_cpp import llama_cpp as c

    c.llama_sampler_reset(ctypes.cast(grammar.address, c.llama_sampler_p_ctypes))
    assert np.array_equal(apply(grammar, zeros), first)


def test_a_refused_token_drops_the_grammar_and_is_counted(
    lab: Lab, grammar: GrammarSampler
) -> None:
    vocab = lab.vocab("llama-bpe")
    wrong = vocab.byte_token(ord("z"))
    assert wrong is not None
    zeros = np.zeros(vocab.n_tokens, np.float32)
    sampler.decoder().sampler_accept(grammar.pointer, wrong)
    assert (grammar.errors, grammar.drops) == (1, 0)
    assert grammar.error
    assert "\n" not in grammar.error
    # Generation goes on unconstrained, as in llama.cpp.
    assert np.array_equal(apply(grammar, zeros), zeros)
    assert (grammar.errors, grammar.drops) == (1, 1)
    assert np.array_equal(apply(grammar, zeros), zeros)
    assert (grammar.errors, grammar.drops) == (1, 1)


def test_a_clone_goes_its_own_way_and_both_are_freed(lab: Lab) -> None:
    from llama_cpp import llama_cpp as c

    vocab = lab.vocab("llama-bpe")
    zeros = np.zeros(vocab.n_tokens, np.float32)
    made = GrammarSampler(lab.tokenizer("llama-bpe", "greedy_tokenize"), GRAMMAR)
    first = apply(made, zeros)
    clone = c.llama_sampler_clone(ctypes.cast(made.address, c.llama_sampler_p_ctypes))
    assert made.live == 2
    c.llama_sampler_accept(clone, vocab.byte_token(ord("a")))
    assert np.array_equal(apply(made, zeros), first)
    made.close()
    assert made.live == 1
    # What the clone needs is kept, though its origin is closed and collected.
    gc.collect()
    assert c.llama_sampler_name(clone) == b"llguidance"
    c.llama_sampler_free(clone)
    assert made.live == 0


def test_a_chain_of_llama_cpp_python_owns_it(lab: Lab) -> None:
    from llama_cpp import llama_cpp as c

    vocab = lab.vocab("llama-bpe")
    made = GrammarSampler(lab.tokenizer("llama-bpe", "greedy_tokenize"), GRAMMAR)
    chain = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
    made.add_to(chain)
    c.llama_sampler_chain_add(chain, c.llama_sampler_init_greedy())
    with pytest.raises(ValueError, match="closed"):
        _ = made.pointer
    logits = np.zeros(vocab.n_tokens, np.float32)
    forbidden, allowed = vocab.byte_token(ord("z")), vocab.byte_token(ord("a"))
    logits[forbidden] = 9.0
    array, _view = candidates(logits)
    address = int(ffi.cast("uintptr_t", array))
    c.llama_sampler_apply(chain, ctypes.cast(address, ctypes.POINTER(c.llama_token_data_array)))
    picked = vocab.table("token_to_piece").tokens[array.data[array.selected].id]
    assert picked.startswith(b"a")
    assert allowed is not None
    c.llama_sampler_accept(chain, allowed)
    assert made.errors == 0
    c.llama_sampler_free(chain)
    assert made.live == 0


# A double free or a free of foreign memory ends the process, so it has one of its own.
IN_LLAMA = """
import json, sys
import numpy as np
from llama_json import SCHEMA, GrammarLlama
from llgbench.engines import registry
from llgbench.inputs import variant
from llgbench.llama import bridge, synthetic
from llgbench.llama.vocab import open_vocab

grammar = "%llguidance {}\\nstart: %json " + json.dumps(SCHEMA)
masked = []

def look(ids, scores):
    masked.append(int(np.isneginf(scores).sum()))
    return scores

with open_vocab("llama-spm") as vocab:
    path = synthetic.synthesize("nano", vocab)
    with bridge.build(registry.get("wheel"), vocab, variant.get("greedy_tokenize")) as tokenizer:
        llama = GrammarLlama(str(path), n_ctx=512, n_threads=1, seed=7, verbose=False)
        llama.follow(tokenizer, grammar)
        options = {"max_tokens": 100, "logits_processor": [look, look]}
        texts = [llama("Room: ", **options)["choices"][0]["text"] for _ in range(2)]
        drops = llama.grammar.drops
        llama.close()
        del llama
print(json.dumps({"texts": texts, "masked": masked, "drops": drops}))
"""


@pytest.mark.usefixtures("_vocabs_here")
def test_a_llama_with_a_logits_processor_frees_each_sampler_once() -> None:
    root = Path(__file__).resolve().parents[1]
    path = os.pathsep.join([str(root / "examples"), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", IN_LLAMA], capture_output=True, text=True, check=False, cwd=root,
        env={**os.environ, "PYTHONPATH": path, "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert all(1 <= json.loads(text)["nights"] <= 14 for text in found["texts"])
    assert found["drops"] == 0
    # The processors stand behind the grammar: what it forbids is forbidden already.
    assert len(found["masked"]) >= 2
    assert min(found["masked"]) > 0


def test_the_places_of_python_samplers_move_with_them(lab: Lab) -> None:
    from llama_cpp import _internals
    from llama_cpp import llama_cpp as c

    made = GrammarSampler(lab.tokenizer("llama-bpe", "greedy_tokenize"), GRAMMAR)
    make: Any = _internals.LlamaSampler
    samplers = make()

    def places() -> list[int | None]:
        return [
            ctypes.cast(
                c.llama_sampler_chain_get(samplers.sampler, at), ctypes.c_void_p
            ).value
            for at in range(c.llama_sampler_chain_n(samplers.sampler))
        ]  # fmt: skip

    samplers.add_greedy()
    samplers.add_custom(lambda _: None)
    samplers.add_greedy()
    before, address = places(), made.address
    made.put_before(samplers)
    assert places() == [address, *before]
    [(at, own)] = samplers.custom_samplers
    assert places()[at] == ctypes.addressof(own.sampler)
    samplers.close()
    assert made.live == 0


def test_a_grammar_that_does_not_compile_is_refused(lab: Lab) -> None:
    with pytest.raises(GrammarError):
        GrammarSampler(lab.tokenizer("llama-bpe", "greedy_tokenize"), "start: (")


@given(st.data())
def test_both_passes_agree_in_any_order(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 200))
    words = -(-n // 32)
    mask = np.array(
        data.draw(
            st.lists(
                st.sampled_from([0, 0xFFFFFFFF, 0xFF00FF00, 1, 0x80000000, 0x12345678]),
                min_size=words, max_size=words,
            )
        ),
        np.uint32,
    )  # fmt: skip
    ids = np.arange(n)
    if data.draw(st.booleans()):
        ids = np.array(data.draw(st.permutations(ids.tolist())))
    ids = ids[: data.draw(st.integers(0, n))]
    results = []
    for function in (lib.lb_apply, lib.lb_apply_plain):
        array, view = candidates(np.linspace(-1, 1, max(len(ids), 1)))
        view["id"][: len(ids)] = ids
        view["p"] = 0.25
        array.size = len(ids)
        function(ffi.from_buffer("uint32_t[]", mask), words, array)
        results.append(np.array(view[: len(ids)]))
    assert results[0].tobytes() == results[1].tobytes()
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    assert np.array_equal(np.isfinite(results[0]["logit"]), bits[ids] == 1)


def test_an_id_beyond_the_mask_is_not_allowed() -> None:
    mask = np.full(1, 0xFFFFFFFF, np.uint32)
    array, view = candidates(np.zeros(3))
    view["id"] = [31, 32, 1_000_000]
    lib.lb_apply(ffi.from_buffer("uint32_t[]", mask), 1, array)
    assert np.isfinite(view["logit"]).tolist() == [True, False, False]


@pytest.mark.parametrize("selection", sampler.SELECTIONS)
def test_every_chain_chooses_an_allowed_token(selection: sampler.Selection) -> None:
    logits = np.full(64, -np.inf, np.float32)
    logits[[5, 9]] = [1.0, 2.0]
    array, _view = candidates(logits)
    with Chain(selection, seed=3) as chain:
        sampler.decoder().sampler_apply(chain.pointer, array)
        assert array.data[array.selected].id in (5, 9)


def test_both_passes_are_timed_side_by_side() -> None:
    mask = np.zeros(1000, np.uint32)
    times = sampler.compare_apply(mask, 32_000, rounds=3)
    assert min(times.ours_ns, times.plain_ns, times.fill_ns) > 0
