"""The greedy lexeme fallback: against the reference, and item by item."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from random import Random

import numpy as np
import pytest
import reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llgbench._native import ffi
from reference import EMPTY, Grammar, Regex, State, Terminal, cat, either, one_of, star, times

from llgbench import paths
from llgbench.engines import build as engine_build
from llgbench.engines import cargo
from llgbench.engines import engine as engines
from llgbench.engines.engine import Engine, Matcher, Tokenizer, byte_tokenizer
from llgbench.errors import GrammarError
from llgbench.inputs import case_file, catalogue, variant
from llgbench.llama import bridge, vocab

LISTED = 'start: STEM SUFFIX\nSTEM: "list" | "listen"\nSUFFIX: "ed"\n'
N = 200  # more bytes than are read again: the fallback is kept in step
CHECKPOINT = f"start: HEAD TAIL\nHEAD: /a|ab{{{N}}}c/\nTAIL: /b{{{N}}}d/\n"
# Four terminals nested in each other's gap, and bytes enough for all to be kept in step.
NESTED = (
    f"start: P Q R TAIL\nP: /p|pqrz{{{N}}}1/\nQ: /q|qrz{{{N}}}2/\nR: /r|rz{{{N}}}3/\n"
    f"TAIL: /z{{{N}}}5/\n"
)


# Where engines are kept between runs, unlike all else that tests cache: building takes minutes.
CACHE = os.environ.get(paths.CACHE_VARIABLE)


def built(flavour: str) -> Engine:
    with pytest.MonkeyPatch.context() as patch:
        if CACHE is None:
            patch.delenv(paths.CACHE_VARIABLE, raising=False)
        else:
            patch.setenv(paths.CACHE_VARIABLE, CACHE)
        lack = cargo.missing()
        if lack is not None and engine_build.cached(flavour) is None:
            pytest.skip(lack)
        return engines.load(engine_build.build(flavour))


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    found = built("fallback")
    threshold(found, 64)
    yield found
    threshold(found, 64)


@pytest.fixture(scope="session")
def tokenizer(engine: Engine) -> Tokenizer:
    return byte_tokenizer(engine)


def threshold(engine: Engine, n: int) -> None:
    call(engine, "llgx_set_fallback_threshold", "void(*)(size_t)")(n)


def call(engine: Engine, name: str, signature: str) -> Callable[..., int]:
    function: Callable[..., int] = ffi.cast(signature, engine.symbol(name))
    return function


def options(**more: object) -> str:
    return f"%llguidance {json.dumps({'greedy_lexeme_fallback': True, **more})}\n"


def matcher(tokenizer: Tokenizer, grammar: str, **more: object) -> Matcher:
    return tokenizer.matcher(options(**more) + grammar)


def reads(m: Matcher, text: str | bytes) -> int:
    """Consume bytes for as long as that works; return how many."""
    data = text.encode() if isinstance(text, str) else text
    for number, byte in enumerate(data):
        mask = m.allowed()
        valid = m.validate([byte]) == 1
        assert mask is None or valid == (byte in mask)
        if not valid or not m.consume(byte):
            return number
    return len(data)


def accepts(tokenizer: Tokenizer, grammar: str, text: str | bytes, **more: object) -> bool:
    with matcher(tokenizer, grammar, **more) as m:
        return reads(m, text) == len(text) and m.is_accepting()


def allowed(m: Matcher) -> list[int]:
    found = m.allowed()
    assert found is not None, m.error()
    return [int(token) for token in found]


def next_bytes(m: Matcher) -> bytes:
    return bytes(token for token in allowed(m) if token < 256)


# ---- against the reference ----


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


def compare(tokenizer: Tokenizer, words: Words, grammar: Grammar, rng: Random, steps: int) -> int:
    """Walk at random through a grammar and back; return how many states were compared."""
    text = options(no_forcing=rng.random() < 0.5) + grammar.to_lark()
    path: list[int] = []
    states, compared = [grammar.start()], 0
    m = tokenizer.matcher(text)
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
@pytest.mark.parametrize("gap", [64, 2, 0])
def test_as_the_reference_on_generated_grammars(engine: Engine, gap: int) -> None:
    tokenizer, words = small_vocabulary(engine)
    compared = 0

    @settings(
        max_examples=600, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(grammars(), st.integers(0, 2**32))
    def run(grammar: Grammar, seed: int) -> None:
        nonlocal compared
        compared += compare(tokenizer, words, grammar, Random(seed), steps=30)

    threshold(engine, gap)
    try:
        run()
    finally:
        threshold(engine, 64)
    assert compared >= 7_000


def test_as_the_reference_on_a_real_vocabulary(engine: Engine) -> None:
    if not catalogue.vocabs()["llama-spm"].here:
        pytest.skip("llama-spm is not fetched (llgbench fetch)")
    with vocab.open_vocab("llama-spm") as opened:
        words = Words(opened.table("token_to_piece").tokens, opened.eos)
        tokenizer = bridge.build(engine, opened, variant.get("greedy_lexeme_fallback"))
        compared = 0

        @settings(
            max_examples=40, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(grammars(), st.integers(0, 2**32))
        def run(grammar: Grammar, seed: int) -> None:
            nonlocal compared
            compared += compare(tokenizer, words, grammar, Random(seed), steps=20)

        run()
        tokenizer.close()
    assert compared >= 250


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


# ---- the cases ----


@pytest.mark.parametrize(
    "name", [n for n in case_file.names() if not n.endswith(("@4096", "@16384"))]
)
def test_cases_come_out_as_recorded(tokenizer: Tokenizer, name: str) -> None:
    found = case_file.load(name)
    for text in found.texts:
        if text.fallback is None:
            continue
        for forcing in (True, False):
            with tokenizer.matcher(
                found.lark({"greedy_lexeme_fallback": True, "no_forcing": not forcing})
            ) as m:
                at = next(
                    (
                        i
                        for i, b in enumerate(text.data)
                        if m.validate([b]) != 1 or not m.consume(b)
                    ),
                    None,
                )
                if at is None and not m.is_accepting():
                    at = len(text.data)
                assert at == text.fallback.reject_at, text.name


# ---- item by item ----


def test_both_names_of_the_option_turn_it_on(tokenizer: Tokenizer) -> None:
    for name in ("greedy_lexeme_fallback", "lexer_backtracking"):
        with tokenizer.matcher(f'%llguidance {{"{name}": true}}\n{LISTED}') as m:
            assert reads(m, "listed") == 6
    with tokenizer.matcher(LISTED) as m:
        assert reads(m, "listed") == 5


def test_a_later_accepting_position_replaces_the_older_for_good(tokenizer: Tokenizer) -> None:
    grammar = 'start: A B | AB C\nA: "a"\nB: "b"\nAB: "ab"\nC: "c"\n'
    assert accepts(tokenizer, grammar, "abc")
    assert not accepts(tokenizer, grammar, "ab")


def test_a_lost_boundary_does_not_come_back(tokenizer: Tokenizer) -> None:
    # No lexeme begins with x: "abc" is complete before it, and what "a" left behind is lost. After
    # the y the lexer is in the state of "aqy", for which a boundary counts.
    grammar = (
        "start: A | A Q | A B C\n"
        "A: /a(bc(xyz)?|q[yv]z)?/\nQ: /q[s-z]?/\nB: /b/\nC: /cxyw/\n"
    )  # fmt: skip
    with matcher(tokenizer, grammar, no_forcing=True) as m:
        for _ in range(2):
            assert reads(m, "aqy") == 3
            assert next_bytes(m) == b"z"
            assert m.rollback(3)
            assert reads(m, "abcxy") == 5
            assert next_bytes(m) == next_bytes(m) == b"z"
            assert not m.is_accepting()
            assert m.validate(b"w") == 0
            assert m.rollback(5)


def test_masks_hold_both_readings(tokenizer: Tokenizer) -> None:
    with matcher(tokenizer, LISTED) as m:
        assert reads(m, "liste") == 5
        assert next_bytes(m) == next_bytes(m) == b"dn"


@pytest.mark.parametrize("n", [1, 62, 63, 64, 65, 66, 200])
def test_the_end_of_input_falls_back_too(tokenizer: Tokenizer, n: int) -> None:
    grammar = f"start: HEAD TAIL\nHEAD: /a|ab{{{n}}}c/\nTAIL: /b+/\n"
    with matcher(tokenizer, grammar) as m:
        assert not m.is_accepting()
        for count in range(n):
            assert reads(m, "ab" if count == 0 else "b") > 0
            assert m.is_accepting()
            assert 256 in allowed(m)
        assert m.consume(256)
        assert m.is_stopped()
        assert m.error() is None


@pytest.mark.parametrize("grammar", [CHECKPOINT, NESTED])
def test_rollback_crosses_a_promotion(tokenizer: Tokenizer, grammar: str) -> None:
    if grammar is CHECKPOINT:
        shared, short, long = "a" + "b" * N, "d", "c" + "b" * N + "d"
    else:
        shared = "pqr" + "z" * N
        short, long = "5", "1qr" + "z" * N + "2r" + "z" * N + "3" + "z" * N + "5"
    with matcher(tokenizer, grammar) as m:
        assert reads(m, shared + short) == len(shared + short)
        assert m.is_accepting()
        assert m.rollback(len(short))
        assert not m.is_accepting()
        assert reads(m, long) == len(long)
        assert m.is_accepting()
        assert m.rollback(len(long) + N // 2)  # back into the open gap
        rest = shared[-(N // 2) :] + short
        assert reads(m, rest) == len(rest)
        assert m.is_accepting()
        assert m.reset()
        assert reads(m, shared + short) == len(shared + short)


@pytest.mark.parametrize("n", [4, 200])
def test_clones_go_their_own_ways(tokenizer: Tokenizer, n: int) -> None:
    grammar = f"start: HEAD TAIL\nHEAD: /a|ab{{{n}}}c/\nTAIL: /b{{{n}}}d/\n"
    with matcher(tokenizer, grammar) as m:
        assert reads(m, "a" + "b" * n) == n + 1
        with m.clone() as other:
            assert reads(other, "d") == 1
            assert other.is_accepting()
            assert not m.is_accepting()
            assert next_bytes(m) == b"cd"
            assert reads(m, "c" + "b" * n + "d") == n + 2
            assert m.is_accepting()
            assert other.rollback(1)
            assert next_bytes(other) == b"cd"


@pytest.mark.parametrize("n", [4, 200])
def test_captures_are_those_of_the_reading_that_won(tokenizer: Tokenizer, n: int) -> None:
    # One lexeme a byte after the boundary, each captured, so that a level holds many.
    grammar = (
        f"start: head part* tail\nhead[capture]: HEAD\npart[capture]: PART\ntail[capture]: TAIL\n"
        f"HEAD: /a|ab{{{n}}}c/\nPART: /b/\nTAIL: /[de]/\n"
    )
    short = [("head", b"a"), ("part", b"b"), ("tail", b"d")]
    with matcher(tokenizer, grammar) as m:
        assert reads(m, "a" + "b" * n + "d") == n + 2
        assert distinct(captures(m)) == short
    with matcher(tokenizer, grammar) as m:
        assert reads(m, "a" + "b" * n + "ce") == n + 3
        assert captures(m) == [("head", b"a" + b"b" * n + b"c"), ("tail", b"e")]


def test_a_captured_lexeme_has_the_bytes_from_before_the_jump(tokenizer: Tokenizer) -> None:
    grammar = "start: HEAD tail\nHEAD: /a|abbbc/\ntail[capture]: /b+d*/\n"
    with matcher(tokenizer, grammar) as m:
        assert reads(m, "abbdd") == 5
        assert m.consume(256)
        assert captures(m) == [("tail", b"bbdd")]


def distinct(found: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    return list(dict.fromkeys(found))


def captures(m: Matcher) -> list[tuple[str, bytes]]:
    engine, pointer = m.tokenizer.engine, ffi.cast("void *", m.pointer)
    count = call(engine, "llgx_matcher_num_captures", "size_t(*)(void *)")(pointer)
    get = call(
        engine,
        "llgx_matcher_capture",
        "int32_t(*)(void *, size_t, char **, size_t *, char **, size_t *)",
    )
    found = []
    for index in range(count):
        name, data = ffi.new("char **"), ffi.new("char **")
        name_len, data_len = ffi.new("size_t *"), ffi.new("size_t *")
        assert get(pointer, index, name, name_len, data, data_len) == 0
        key = bytes(ffi.buffer(name[0], name_len[0])).decode()
        found.append((key, bytes(ffi.buffer(data[0], data_len[0]))))
    return found


def test_suffix_lexemes(tokenizer: Tokenizer) -> None:
    grammar = 'start: HEAD word "!"\nHEAD: /x|xyzw/\nword[suffix=".", capture]: /[a-z]+/\n'
    with matcher(tokenizer, grammar) as m:
        assert reads(m, "xyza.!") == 6
        assert m.is_accepting()
        assert captures(m) == [("word", b"yza")]
    with matcher(tokenizer, grammar) as m:
        assert reads(m, "xyzwa.!") == 7
        assert captures(m) == [("word", b"a")]


def test_stop_lexemes_whose_stop_is_forced_next(tokenizer: Tokenizer) -> None:
    grammar = 'start: HEAD word "."\nHEAD: /x|xyzw/\nword[stop=".", capture]: /[a-z]+/\n'
    for text, word in [("xyza.", b"yza"), ("xyzwa.", b"a")]:
        with matcher(tokenizer, grammar) as m:
            assert reads(m, text) == len(text)
            assert m.is_accepting()
            assert captures(m) == [("word", word)]


def test_lazy_lexemes_end_at_once_in_either_reading(tokenizer: Tokenizer) -> None:
    grammar = 'start: (HEAD | lazy) TAIL\nHEAD: /a/\nlazy[suffix="c"]: /a[bc]+/\nTAIL: /bd|cd/\n'
    assert accepts(tokenizer, grammar, "abccd")
    assert accepts(tokenizer, grammar, "abd")
    assert not accepts(tokenizer, grammar, "abcbd" + "d")


def test_ignored_text_is_read_again_as_well(tokenizer: Tokenizer) -> None:
    grammar = "start: WORD WORD\nWORD: /[a-z]+|[a-z]+ +[0-9]/\n%ignore / +/\n"
    assert accepts(tokenizer, grammar, "ab   cd")
    assert accepts(tokenizer, grammar, "ab   7cd")
    assert not accepts(tokenizer, grammar, "ab   ")


def test_max_tokens_is_refused(tokenizer: Tokenizer) -> None:
    for grammar in (
        "start: a B\na[max_tokens=3]: /a+/\nB: /b/\n",
        'start: a "b"\na[max_tokens=3]: %json {"type": "string"}\n',
    ):
        with pytest.raises(GrammarError, match="max_tokens= is not supported with greedy_lexeme"):
            matcher(tokenizer, grammar)
        tokenizer.matcher(grammar).close()


def test_a_special_token_ends_the_lexeme(engine: Engine) -> None:
    tokens = [b"a", b"b", b"c", b"ab", b"\xff<|x|>", b"\xff<end>"]
    lens = np.array([len(t) for t in tokens], np.uint32)
    tokenizer = Tokenizer(engine, lens, np.frombuffer(b"".join(tokens), np.uint8), eos=5)
    a, b, c, ab, special = range(5)
    with matcher(tokenizer, "start: HEAD TAIL <|x|> TAIL\nHEAD: /a|abc/\nTAIL: /b/\n") as m:
        assert m.consume(ab)
        assert allowed(m) == [c, special]
        assert m.validate([special, b]) == 2
        assert m.consume(special)
        assert allowed(m) == [b]
        assert m.rollback(1)
        assert m.consume(c)
        assert allowed(m) == [b]
        assert m.reset()
        for token in (a, b, special, b):
            assert m.consume(token)
        assert m.is_accepting()


def test_parametric_rules(tokenizer: Tokenizer) -> None:
    grammar = (
        "start: perm::0x0\n"
        'perm::_: "." %if is_ones([0:2])\n'
        "    | A perm::set_bit(0) %if bit_clear(0)\n"
        "    | B perm::set_bit(1) %if bit_clear(1)\n"
        "A: /a|abx/\nB: /b|bay/\n"
    )
    assert accepts(tokenizer, grammar, "ab.")
    assert accepts(tokenizer, grammar, "ba.")
    assert accepts(tokenizer, grammar, "abxb.")
    assert not accepts(tokenizer, grammar, "aa.")
    assert not accepts(tokenizer, grammar, "aba.")


def test_embedded_json(tokenizer: Tokenizer) -> None:
    schema = json.dumps({"type": "object", "properties": {"n": {"type": "number"}}})
    # In braces, the long form of HEAD looks like the data for a while.
    grammar = f'start: HEAD data "!"\nHEAD: "x" | "x{{\\"n\\":x"\ndata: %json {schema}\n'
    assert accepts(tokenizer, grammar, 'x{"n":1.5}!')
    assert accepts(tokenizer, grammar, 'x{"n":x{"n":1}!')
    assert not accepts(tokenizer, grammar, 'x{"n":1.}!')


def test_temperature_is_that_of_the_reading_on_top(engine: Engine, tokenizer: Tokenizer) -> None:
    grammar = "start: head tail\nhead[temperature=0.25]: /a|abbc/\ntail[temperature=0.75]: /bbd/\n"
    api = engine.api
    init = ffi.new("lb_constraint_init *")
    api.constraint_init_set_defaults(init, tokenizer.pointer)
    init.log_buffer_level = init.log_stderr_level = 0
    new = call(engine, "llg_new_constraint_lark", "void *(*)(void *, char *)")
    constraint = new(ffi.cast("void *", init), ffi.new("char[]", (options() + grammar).encode()))
    result = ffi.new("char[]", 256)
    seen = []
    for byte in b"abbd":
        assert (
            call(engine, "llg_compute_mask", "int32_t(*)(void *, void *)")(constraint, result) == 0
        )
        seen.append(call(engine, "llg_get_temperature", "float(*)(void *)")(constraint))
        commit = call(engine, "llg_commit_token", "int32_t(*)(void *, uint32_t, void *)")
        assert commit(constraint, byte, result) == 0
    assert seen == pytest.approx([0.25] * 4)
    call(engine, "llg_free_constraint", "void(*)(void *)")(constraint)


def test_forced_bytes_are_those_all_readings_share(engine: Engine) -> None:
    if not catalogue.vocabs()["llama-bpe"].here:
        pytest.skip("llama-bpe is not fetched (llgbench fetch)")
    grammar = "start: HEAD TAIL\nHEAD: /a|abbbbbbbbc/\nTAIL: /bbbbbbbbdefghijk/\n"
    with vocab.open_vocab("llama-bpe") as opened:
        tokenizer = bridge.build(engine, opened, variant.get("greedy_lexeme_fallback"))
        assert tokenizer.forces
        tokens = opened.table("token_to_piece").tokens
        with matcher(tokenizer, grammar) as m:
            spelled = b""
            while not m.is_stopped():
                forced = m.forced()
                assert m.validate(forced) == len(forced)
                data = b"".join(tokens[t] for t in forced)
                whole = b"abbbbbbbbdefghijk"
                # Where the two readings part, nothing is forced over that point.
                assert whole.startswith(spelled + data)
                assert not len(spelled) < 9 < len(spelled + data)
                if not forced:
                    fits = [t for t in allowed(m) if whole.startswith(spelled + tokens[t])]
                    forced = [max(fits, key=lambda t: len(tokens[t]))]
                    data = tokens[forced[0]]
                for token in forced:
                    assert m.consume(token)
                spelled += data
            assert spelled == whole
        tokenizer.close()


def test_the_work_is_counted_and_bounded(engine: Engine, tokenizer: Tokenizer) -> None:
    with matcher(tokenizer, CHECKPOINT) as m:
        assert reads(m, "a" + "b" * N + "d") == N + 2
        work = fallback_stats(m)
        # Each mask reads at most the threshold again, and each byte is kept in step with once.
        assert work["snapshots"] == 1
        assert work["promotions"] == 1
        assert work["synced_bytes"] <= N
        assert work["reread_bytes"] <= 3 * (N + 64 * 65)


@pytest.mark.parametrize("last", ["b", "c"])
def test_a_chain_of_boundaries_costs_a_byte_no_more_the_longer_it_is(
    tokenizer: Tokenizer, last: str
) -> None:
    # Every a could be an item, or all of them the beginning of one.
    grammar = "start: ITEM* (LAST | END)\nITEM: /a|a+c/\nLAST: /b/\nEND: /d/\n"
    for n in (200, 400):
        with matcher(tokenizer, grammar, no_forcing=True) as m:
            assert reads(m, "a" * n) == n
            assert sorted(next_bytes(m)) == list(b"abcd")
            assert fallback_stats(m)["synced_bytes"] <= 2 * n
            assert reads(m, f"{last}d") == (1 if last == "b" else 2)
            assert m.is_accepting()


def fallback_stats(m: Matcher) -> dict[str, int]:
    names = ("recoveries", "reread_bytes", "promotions", "snapshots", "synced_bytes")
    stats = ffi.new("uint64_t[]", [8 * (len(names) + 1)] + [0] * len(names))
    get = call(m.tokenizer.engine, "llgx_matcher_fallback_stats", "int32_t(*)(void *, void *)")
    assert get(ffi.cast("void *", m.pointer), stats) == 0
    return dict(zip(names, list(stats)[1:], strict=True))


def step_stats(m: Matcher) -> list[int]:
    stats = ffi.new("uint64_t[]", [56] + [0] * 6)
    get = call(m.tokenizer.engine, "llgx_matcher_step_stats", "int32_t(*)(void *, void *)")
    assert get(ffi.cast("void *", m.pointer), stats) == 0
    return list(stats)[1:]


@pytest.mark.parametrize("name", ["listed", "json-nested", "fstring-greedy", "soname", "lazy-stop"])
def test_off_is_stock(engine: Engine, tokenizer: Tokenizer, name: str) -> None:
    stock = byte_tokenizer(built("stock"))
    found = case_file.load(name)
    for text in found.texts:
        with stock.matcher(found.lark()) as a, tokenizer.matcher(found.lark()) as b:
            for byte in text.data:
                assert allowed(a) == allowed(b)
                assert step_stats(a) == step_stats(b)
                assert a.validate([byte]) == b.validate([byte])
                taken = a.consume(byte)
                assert taken == b.consume(byte)
                assert without_times(a.error()) == without_times(b.error())
                if not taken:
                    break
            else:
                assert a.is_accepting() == b.is_accepting()


def without_times(message: str | None) -> list[str]:
    return [line for line in (message or "").splitlines() if "compute_time_us" not in line]
