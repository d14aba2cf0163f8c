"""The adapter: the same engine through it and without it, and real engines behind it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from conftest import Lab
from llgbench._native import ffi
from reference import Grammar, State, Terminal, literal

from llgbench.engines.engine import Engine
from llgbench.errors import GrammarError, UnavailableError
from llgbench.inputs import case_file as cases
from llgbench.inputs import variant
from llgbench.inputs.case import Case
from llgbench.measure import replay as direct
from llgbench.peers import grammars
from llgbench.peers.adapter import Peer, PeerMatcher, Vocabulary, load, with_end
from llgbench.peers.classes import text_tokens
from llgbench.peers.grammars import LARK, SCHEMA, Source

VOCAB = "llama-spm"
SCHEMA_TEXT = (
    '{"type": "object", "properties": {"a": {"type": "integer"}, '
    '"b": {"type": "array", "items": {"type": "integer"}}, "c": {"type": "boolean"}}, '
    '"required": ["a"], "additionalProperties": false}'
)


@pytest.fixture(scope="module")
def llguidance(lab: Lab) -> Iterator[Vocabulary]:
    vocab = lab.vocab(VOCAB)
    with Vocabulary(load("wheel", vocab, "spaced"), vocab) as found:
        yield found


@pytest.fixture(scope="module")
def gbnf(lab: Lab) -> Iterator[Vocabulary]:
    vocab = lab.vocab(VOCAB)
    with Vocabulary(load("gbnf", vocab, "spaced"), vocab) as found:
        yield found


@pytest.fixture(scope="module")
def other(lab: Lab, xgrammar: str) -> Iterator[Vocabulary]:
    vocab = lab.vocab(VOCAB)
    with Vocabulary(load(xgrammar, vocab, "spaced"), vocab) as found:
        yield found


@pytest.fixture(scope="module")
def shim(lab: Lab, crate: str) -> Iterator[Vocabulary]:
    vocab = lab.vocab(VOCAB)
    with Vocabulary(load(crate, vocab, "spaced"), vocab) as found:
        yield found


def test_llguidance_is_called_by_its_own_functions(llguidance: Vocabulary, wheel: Engine) -> None:
    """What is timed is the library's function itself, so the adapter adds not one instruction."""
    table = llguidance.peer.table
    for ours, theirs in (
        ("mask", "matcher_compute_mask"), ("accept", "matcher_consume_token"),
        ("finish", "matcher_get_mask"), ("stopped", "matcher_is_stopped"),
    ):  # fmt: skip
        address = int(ffi.cast("uintptr_t", getattr(table, ours)))
        assert address == int(ffi.cast("uintptr_t", getattr(wheel.api, theirs)))


def test_llguidance_gives_the_same_masks_through_it(llguidance: Vocabulary, lab: Lab) -> None:
    case = cases.load("json-tool-call")
    grammar = grammars.source(None, case, "flexible").text
    tokenizer = lab.tokenizer(VOCAB, variant.get("greedy_tokenize"))
    for text in case.texts:
        trace = with_end(lab.vocab(VOCAB).trace(text.data), llguidance.eos)
        with tokenizer.matcher(grammar) as matcher:
            without = direct.replay(matcher, trace, facts=True)
        with llguidance.compile(Source(LARK, grammar)) as compiled, compiled.start() as peer:
            through = peer.replay(trace, facts=True)
        assert through.end == without.end
        for field in ("mask_hash", "allowed", "flags"):
            assert np.array_equal(through.steps[field], without.steps[field]), text.name


def walk(matcher: PeerMatcher, tokens: list[int]) -> list[np.ndarray]:
    found = []
    for token in tokens:
        mask = matcher.mask()
        assert mask is not None
        assert mask[token // 32] >> (token % 32) & 1
        found.append(mask)
        assert matcher.accept(token)
    return found


@pytest.mark.parametrize("name", ["llguidance", "other", "gbnf"])
def test_every_engine_walks_resets_and_ends(
    name: str, request: pytest.FixtureRequest, lab: Lab
) -> None:
    walks_resets_and_ends(request.getfixturevalue(name), lab)


def test_a_shim_walks_resets_and_ends(shim: Vocabulary, lab: Lab) -> None:
    walks_resets_and_ends(shim, lab)


def walks_resets_and_ends(vocabulary: Vocabulary, lab: Lab) -> None:
    spec = vocabulary.peer.spec
    case = Case("x", "json_schema", SCHEMA_TEXT, lab.vocab(VOCAB).path, "", ())
    source = grammars.source(spec, case, "spaced")
    tokens = lab.vocab(VOCAB).trace(b'{"a": 12}').tolist()
    with vocabulary.compile(source) as compiled, compiled.start() as matcher:
        assert not matcher.complete()
        first = walk(matcher, tokens)
        assert matcher.complete()
        end = matcher.mask()
        assert end is not None
        assert end[vocabulary.eos // 32] >> (vocabulary.eos % 32) & 1
        assert matcher.reset()
        assert not matcher.complete()
        again = walk(matcher, tokens)
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
        done = matcher.replay(with_end(np.array(tokens, np.uint32), vocabulary.eos), reset=True)
        # llguidance stops by itself where nothing can follow; the others take the end token.
        end_step = vocabulary.peer.spec is not None
        assert (done.end.name, len(done.op_ns)) == (
            "WHOLE" if end_step else "STOPPED", len(tokens) + end_step
        )  # fmt: skip
        assert matcher.complete()


def test_white_space_is_what_was_asked_for(
    shim: Vocabulary, other: Vocabulary, gbnf: Vocabulary, llguidance: Vocabulary, lab: Lab
) -> None:
    """Every engine, told to space JSON, takes a spaced text and no other."""
    case = Case("x", "json_schema", SCHEMA_TEXT, lab.vocab(VOCAB).path, "", ())
    for vocabulary in (shim, other, gbnf, llguidance):
        source = grammars.source(vocabulary.peer.spec, case, "spaced")
        with vocabulary.compile(source) as compiled:
            for text, right in (
                (b'{"a": 1}', True), (b'{"a":1}', False), (b'{ "a": 1}', False),
                (b'{"a": 1, "b": [2, 3], "c": true}', True), (b'{"a": 1, "c": true}', True),
                (b'{"a": 1,"b": [2, 3]}', False), (b'{"a": 1, "b": [2,3]}', False),
                (b'{"a": 1 , "b": [2, 3]}', False),
            ):  # fmt: skip
                with compiled.start() as matcher:
                    trace = lab.vocab(VOCAB).trace(text)
                    taken = matcher.replay(trace).consumed == len(trace) and matcher.complete()
                assert taken == right, (vocabulary.peer.name, text)


def test_a_grammar_that_does_not_compile_says_why(
    other: Vocabulary, llguidance: Vocabulary, gbnf: Vocabulary
) -> None:
    for vocabulary, kind in ((other, SCHEMA), (llguidance, LARK), (gbnf, grammars.GBNF)):
        with pytest.raises(GrammarError, match=r"\w+ "):
            vocabulary.compile(Source(kind, "{ ]"))


def test_the_adapters_own_step_is_measured(
    llguidance: Vocabulary, other: Vocabulary, gbnf: Vocabulary
) -> None:
    for vocabulary in (llguidance, other, gbnf):
        step = vocabulary.peer.empty_step()
        assert step.read_ns >= 0
        assert step.wall_ns > 0


def test_an_engine_that_is_not_here(lab: Lab) -> None:
    with pytest.raises(UnavailableError, match=r"engine add xgrammar:0\.0\.1"):
        load("xgrammar:0.0.1", lab.vocab(VOCAB), "spaced")


# ---- masks by a reference that is written from the rule alone ----


def allowed_by(state: State, pieces: list[bytes], asked: np.ndarray) -> np.ndarray:
    @cache
    def alive(data: bytes) -> bool:
        before = state if len(data) == 1 else None
        if len(data) > 1 and not alive(data[:-1]):
            return False
        return (before or state).read(data) is not None

    bits = np.zeros(32 * len(asked), bool)
    for token in np.flatnonzero(np.unpackbits(asked.view(np.uint8), bitorder="little")).tolist():
        bits[token] = token < len(pieces) and alive(pieces[token])
    return np.packbits(bits, bitorder="little").view(np.uint32)


LISTED = Grammar(
    {"start": (("STEM", "SUFFIX"),)},
    {
        "STEM": Terminal(literal("list")),
        "SUFFIX": Terminal(literal("ed")),
    },
)


def test_small_grammars_by_the_reference(other: Vocabulary, lab: Lab) -> None:
    vocab = lab.vocab(VOCAB)
    pieces, asked = vocab.table("token_to_piece").tokens, text_tokens(vocab)
    asked[vocab.eos // 32] &= ~np.uint32(1 << (vocab.eos % 32))
    with (
        other.compile(Source(LARK, LISTED.to_lark())) as compiled,
        compiled.start() as matcher,
    ):
        state: State | None = LISTED.start()
        for token in vocab.trace(b"listed").tolist():
            assert state is not None
            mask = matcher.mask()
            assert mask is not None
            assert np.array_equal(mask & asked, allowed_by(state, pieces, asked))
            assert matcher.accept(token)
            state = state.read(pieces[token])
        assert state is not None
        assert matcher.complete() == state.accepts() is True


def test_a_peer_keeps_its_name(other: Vocabulary, xgrammar: str) -> None:
    peer: Peer = other.peer
    assert peer.name == xgrammar
    assert "apache-tvm-ffi" in peer.release
