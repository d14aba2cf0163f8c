"""The greedy lexeme fallback against its reference, on generated grammars."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
import reference
from conftest import FUZZ
from fallback_engine import (
    GENERATED,
    allowed,
    built,
    captures,
    matcher,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import EMPTY, Grammar, Regex, State, Terminal, cat, either, one_of, star, times

from llgbench.engines.engine import Engine, Tokenizer, byte_tokenizer
from llgbench.fallback.states import THRESHOLD
from llgbench.inputs import catalogue, variant
from llgbench.llama import bridge, vocab


@pytest.fixture(scope="session")
def engine() -> Engine:
    return built("fallback")


@pytest.fixture(scope="session")
def tokenizer(engine: Engine) -> Tokenizer:
    return byte_tokenizer(engine)


def regexes(classes: Sequence[str]) -> st.SearchStrategy[Regex]:
    letters = st.sampled_from(classes).map(one_of)
    return st.recursive(
        letters,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda parts: cat(*parts)),
            st.tuples(inner, inner).map(lambda parts: either(*parts)),
            inner.map(star),
            inner.map(lambda regex: either(EMPTY, regex)),
            st.tuples(inner, st.integers(2, 4)).map(lambda parts: times(*parts)),
            # What is short, or long and late to fail, leaves boundaries pending.
            st.tuples(inner, inner, st.integers(1, 9), letters).map(
                lambda p: either(p[0], cat(p[0], times(p[1], p[2]), p[3]))
            ),
        ),
        max_leaves=6,
    )


@st.composite
def grammars(draw: st.DrawFn) -> Grammar:
    # In half of the grammars no lexeme begins with "d", so that a boundary before one is of no use.
    inner = draw(st.booleans())

    def terminal(*, may_be_lazy: bool) -> Terminal:
        if inner:
            rest = draw(regexes(["a", "b", "d", "d", "cd"]))
            regex = cat(one_of(draw(st.sampled_from(["a", "b", "c", "ab"]))), rest)
            regex = either(regex, one_of(draw(st.sampled_from("abc"))))
        else:
            regex = draw(regexes(["a", "b", "c", "ab", "bc"]))
        if reference.nullable(regex):
            regex = cat(regex, one_of(draw(st.sampled_from("abc"))))
        lazy = may_be_lazy and draw(st.integers(0, 9)) == 0
        return Terminal(regex, draw(st.sampled_from("abc")) if lazy else "")

    terminals: dict[str, Terminal] = {}
    for number in range(draw(st.integers(2, 4))):
        made = terminal(may_be_lazy=True)
        terminals[f"{'t' if made.lazy else 'T'}{number}"] = made
    names, rules = list(terminals), ["start", *(f"r{i}" for i in range(draw(st.integers(0, 2))))]
    table: dict[str, tuple[tuple[str, ...], ...]] = {}
    for rule in rules:
        # The first alternative is of terminals alone, so that every rule can end.
        first = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
        symbols = st.lists(st.sampled_from(names + rules[1:]), min_size=rule == "start", max_size=4)
        more = draw(st.lists(symbols, max_size=2))
        table[rule] = tuple(dict.fromkeys(map(tuple, [first, *more])))
    skip = terminal(may_be_lazy=False) if draw(st.integers(0, 3)) == 0 else None
    return Grammar(table, terminals, skip)


_LONGER = {bytes(Random(i).choices(b"aabbccd", k=2 + i % 6)) for i in range(60)}
SMALL = [b"a", b"b", b"c", b"d", *sorted(_LONGER)]


class Node:
    """A node of a vocabulary's tree of bytes."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.below: dict[int, Node] = {}


class Words:
    """A vocabulary's tokens as a tree, so that the reference's mask is one walk."""

    def __init__(self, tokens: Sequence[bytes], eos: int) -> None:
        self.tokens, self.eos, self.root = list(tokens), eos, Node()
        for token, data in enumerate(tokens):
            if data and data[0] != 0xFF:
                node = self.root
                for byte in data:
                    node = node.below.setdefault(byte, Node())
                node.tokens.append(token)

    def allowed(self, state: State) -> set[int]:
        found = {self.eos} if state.accepts() else set()
        todo = [(state, self.root)]
        while todo:
            here, node = todo.pop()
            found.update(node.tokens)
            for byte, below in node.below.items():
                if (there := here.step(byte)) is not None:
                    todo.append((there, below))
        return found


def compare(
    tokenizer: Tokenizer,
    words: Words,
    grammar: Grammar,
    rng: Random,
    steps: int,
    gap: int = THRESHOLD,
) -> int:
    """Walk at random through a grammar and back; return how many states were compared."""
    no_forcing = rng.random() < 0.5
    path: list[int] = []
    states, compared = [grammar.start()], 0
    m = matcher(tokenizer, grammar.to_lark(), gap=gap, no_forcing=no_forcing)
    for _ in range(steps):
        state = states[-1]
        assert m.error() is None
        want = words.allowed(state)
        going_on = sorted(want - {words.eos})
        compared += 1
        if m.is_stopped():
            assert not going_on
        else:
            assert m.is_accepting() == (words.eos in want)
            if want:
                assert allowed(m) == allowed(m) == sorted(want)
            probe = rng.choices(range(len(words.tokens)), k=3)
            if going_on:
                probe.insert(0, rng.choice(going_on))
            assert m.validate(probe) == valid_length(words, state, probe)
        if rng.random() < 0.05:
            m, old = m.clone(), m
            if going_on and not old.is_stopped():
                old.consume(going_on[0])
            old.close()
        if path and (not going_on or m.is_stopped() or rng.random() < 0.2):
            back = rng.randint(1, len(path))
            assert m.rollback(back)
            del path[-back:], states[-back:]
        elif going_on:
            token = rng.choice(going_on)
            assert m.consume(token), m.error()
            after = state.read(words.tokens[token])
            assert after is not None
            path.append(token)
            states.append(after)
        else:
            break
    m.close()
    return compared


def valid_length(words: Words, state: State, tokens: Sequence[int]) -> int:
    here: State | None = state
    for number, token in enumerate(tokens):
        here = here.read(words.tokens[token]) if here is not None else None
        if here is None:
            return number
    return len(tokens)


def small_vocabulary(engine: Engine) -> tuple[Tokenizer, Words]:
    tokens = [*SMALL, b"\xff<end>"]
    lens = np.array([len(t) for t in tokens], np.uint32)
    data = np.frombuffer(b"".join(tokens), np.uint8)
    return Tokenizer(engine, lens, data, eos=len(SMALL)), Words(SMALL, len(SMALL))


# 64 as it is, and so few that almost every fallback is kept in step.
@pytest.mark.fuzz
@pytest.mark.parametrize("gap", [64, 2, 0])
def test_as_the_reference_on_generated_grammars(engine: Engine, gap: int) -> None:
    tokenizer, words = small_vocabulary(engine)
    compared = 0

    @settings(GENERATED, max_examples=FUZZ)
    @given(grammars(), st.integers(0, 2**32))
    def run(grammar: Grammar, seed: int) -> None:
        nonlocal compared
        compared += compare(tokenizer, words, grammar, Random(seed), steps=30, gap=gap)

    run()
    assert compared >= 11 * FUZZ


def test_as_the_reference_on_a_real_vocabulary(engine: Engine) -> None:
    if not catalogue.vocabs()["llama-spm"].here:
        pytest.skip("llama-spm is not fetched (llgbench fetch)")
    with vocab.open_vocab("llama-spm") as opened:
        words = Words(opened.table("token_to_piece").tokens, opened.eos)
        tokenizer = bridge.build(engine, opened, variant.get("greedy_lexeme_fallback"))
        compared = 0

        @settings(GENERATED, max_examples=40)
        @given(grammars(), st.integers(0, 2**32))
        def run(grammar: Grammar, seed: int) -> None:
            nonlocal compared
            compared += compare(tokenizer, words, grammar, Random(seed), steps=20, gap=THRESHOLD)

        run()
        tokenizer.close()
    assert compared >= 250


@pytest.mark.parametrize("gap", [64, 0])
def test_as_the_reference_with_many_levels(engine: Engine, gap: int) -> None:
    # Every a, and in the second every letter, could be an item; no two levels are in one state.
    tokenizer, words = small_vocabulary(engine)
    items = [
        either(one_of("a"), cat(times(one_of("ab"), 40), one_of("c"))),
        either(one_of("ab"), cat(one_of("a"), times(one_of("ab"), 30), one_of("c"))),
        either(one_of("ab"), cat(times(one_of("ab"), 24), either(EMPTY, times(one_of("ab"), 20)))),
    ]
    for item in items:
        terminals = {"ITEM": Terminal(item), "END": Terminal(one_of("d"))}
        rules = {"start": (("list", "END"),), "list": (("ITEM",), ("list", "ITEM"))}
        for seed in range(4):
            grammar = Grammar(rules, terminals)
            assert compare(tokenizer, words, grammar, Random(seed), steps=50, gap=gap) >= 30


def test_the_reference_reads_the_examples() -> None:
    listed = Grammar(
        {"start": (("STEM", "SUFFIX"),)},
        {
            "STEM": Terminal(either(reference.literal("list"), reference.literal("listen"))),
            "SUFFIX": Terminal(reference.literal("ed")),
        },
    )
    for text, complete in [(b"listed", True), (b"listened", True), (b"list", False)]:
        state = listed.start().read(text)
        assert state is not None
        assert state.accepts() is complete
    assert listed.start().read(b"liste") is not None
    assert listed.start().read(b"lists") is None


@st.composite
def capturing(draw: st.DrawFn) -> Grammar:
    """A grammar in which some rules and terminals are captured."""
    plain = draw(grammars())
    chosen = draw(st.sets(st.sampled_from([*plain.rules, *plain.terminals])))
    captured = chosen - {"%ignore", "start"}

    def renamed(name: str) -> str:
        return name.lower() if name in captured else name

    rules = {
        rule: tuple(tuple(map(renamed, symbols)) for symbols in alternatives)
        for rule, alternatives in plain.rules.items()
    }
    skip = plain.terminals.pop("%ignore", None)
    terminals = {renamed(name): terminal for name, terminal in plain.terminals.items()}
    return Grammar(rules, terminals, skip, frozenset(map(renamed, captured)))


# 64 as it is, and so few that levels are kept in step after a byte or two.
@pytest.mark.fuzz
@pytest.mark.parametrize("gap", [64, 1, 0])
def test_captures_are_the_references(tokenizer: Tokenizer, gap: int) -> None:
    compared = 0

    @settings(GENERATED, max_examples=FUZZ)
    @given(capturing(), st.integers(0, 2**32))
    def run(grammar: Grammar, seed: int) -> None:
        nonlocal compared
        compared += captures_compared(tokenizer, grammar, Random(seed), gap)

    run()
    assert compared >= 2 * FUZZ


@pytest.mark.parametrize("gap", [64, 1, 0])
def test_a_captured_rule_begins_where_its_first_lexeme_does(tokenizer: Tokenizer, gap: int) -> None:
    """The last r0 is two lexemes of one byte each, read again behind a longer one."""
    grammar = (
        "start: T1 | T1 r0 r0\nr0[capture]: t0 t0\n"
        "t0[capture]: /([ab](()|bbb)|b)/\nT1: /([ab]((()|d))*|b)/\n"
    )
    with matcher(tokenizer, grammar, gap=gap, no_forcing=True) as m:
        for byte in b"adaabbbbb":
            assert m.consume(byte)
        assert m.consume(256)
        assert {data for name, data in captures(m) if name == "r0"} == {b"aabbb", b"bb"}


def captures_compared(tokenizer: Tokenizer, grammar: Grammar, rng: Random, gap: int) -> int:
    """Walk at random through a grammar; at each place where the text may end, end it in a clone."""
    state: State | None = grammar.start()
    compared, text = 0, b""
    with matcher(tokenizer, grammar.to_lark(), gap=gap, no_forcing=True) as m:
        for _ in range(14):
            assert state is not None
            ended = state.ended()
            if ended is not None and grammar.is_complete(ended.chart):
                compared += 1
                with m.clone() as other:
                    assert other.is_stopped() or other.consume(256), other.error()
                    assert set(captures(other)) == ended.captures(), (grammar.to_lark(), text)
            after = {byte: state.step(byte) for byte in b"abcd"}
            going_on = [byte for byte, there in after.items() if there is not None]
            if not going_on:
                break
            byte = rng.choice(going_on)
            assert m.consume(byte), m.error()
            state, text = after[byte], text + bytes([byte])
    return compared
