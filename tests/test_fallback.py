"""The greedy lexeme fallback, item by item."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest
from fallback_engine import (
    CHECKPOINT,
    LISTED,
    NESTED,
    N,
    accepts,
    allowed,
    built,
    call,
    captures,
    matcher,
    next_bytes,
    options,
    reads,
)
from llgbench._native import ffi

from llgbench.engines.engine import Engine, Matcher, Tokenizer, byte_tokenizer
from llgbench.errors import GrammarError
from llgbench.inputs import case_file, catalogue, variant
from llgbench.llama import bridge, vocab


@pytest.fixture(scope="session")
def engine() -> Engine:
    return built("fallback")


@pytest.fixture(scope="session")
def tokenizer(engine: Engine) -> Tokenizer:
    return byte_tokenizer(engine)


# ---- the cases ----


@pytest.mark.parametrize(
    "name", [name for name in case_file.names() if not name.endswith(("@4096", "@16384"))]
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
    names = ("greedy_lexeme_fallback", "lexer_backtracking")
    lines = [f'%llguidance {{"{name}": true}}\n' for name in names]
    # Of engines that have the ability, each knows its own name and ignores the other.
    for option in (
        *lines,
        "".join(lines),
        f"%llguidance {json.dumps(dict.fromkeys(names, True))}\n",
    ):
        with tokenizer.matcher(option + LISTED) as m:
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
            assert reads(m, "abc") == 3
            before = fallback_stats(m)
            assert reads(m, "xy") == 2
            assert next_bytes(m) == next_bytes(m) == b"z"
            assert not m.is_accepting()
            assert m.validate(b"w") == 0
            # Nor is it tried, in vain.
            assert fallback_stats(m) == before
            assert m.rollback(5)


def test_a_boundary_before_a_byte_that_begins_nothing_is_not_tried(tokenizer: Tokenizer) -> None:
    # After "ab" and "cx" the lexer is in one state; no lexeme begins with x.
    grammar = "start: A | A B\nA: /a(bz)?|c(xz)?/\nB: /b/\n"
    with matcher(tokenizer, grammar, no_forcing=True) as m:
        assert reads(m, "ab") == 2
        assert m.is_accepting()
        assert m.rollback(2)
        assert reads(m, "c") == 1
        before = fallback_stats(m)
        assert reads(m, "x") == 1
        assert next_bytes(m) == b"z"
        assert not m.is_accepting()
        assert fallback_stats(m) == before


def test_a_lexeme_that_has_not_begun_is_not_the_longer_one(tokenizer: Tokenizer) -> None:
    # After "a;" H is where it began, and so is the H that may follow l. There the text may end.
    grammar = "start: H l H | H l\nH: /(a;)*(a|z)/\nl[lazy]: /;/\n"
    with matcher(tokenizer, grammar, no_forcing=True) as m:
        assert reads(m, "a;") == 2
        assert m.is_accepting()
        assert 256 in allowed(m)


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


def test_a_mask_kept_is_not_another_texts(tokenizer: Tokenizer) -> None:
    # Position, row and state are the same after either text; what may follow is not.
    grammar = 'start: "a" X "1" | "b" X "2"\nX: /x+/\n'
    with matcher(tokenizer, grammar, no_forcing=True) as m:
        # No mask between, which would take the place of the one that is kept.
        for text, want in (("ax", b"1x"), ("bx", b"2x")):
            for byte in text.encode():
                assert m.consume(byte)
            assert next_bytes(m) == want
            assert m.rollback(2)


def test_what_a_level_accepts_replaces_its_older_boundary(tokenizer: Tokenizer) -> None:
    gap = "b" * 71
    grammar = (
        "start: HEAD T REST\nHEAD: /p|pab{71}abbbbz/\nT: /a|ab{71}a|ab{71}abq/\n"
        "REST: /bbbx|b{71}abbbby/\n"
    )
    with matcher(tokenizer, grammar, no_forcing=True) as m:
        text = f"pa{gap}abbbb"
        assert reads(m, text) == len(text)
        # In the level T is the longer one, after which REST has bbbb; y would follow its "a".
        assert next_bytes(m) == b"bz"


def test_a_rolled_back_text_has_the_levels_it_had(tokenizer: Tokenizer) -> None:
    # Each newline could be a lexeme, or all of them the beginning of one.
    grammar = (
        "start: (NL | CMT | W)* END\nNL: /\\n/\nCMT: /\\n[ \\n]*#[^\\n]*/\nW: /[a-z]+/\nEND: /~/\n"
    )
    rng = Random(0)
    with matcher(tokenizer, grammar, no_forcing=True) as m:
        length = 0
        for _ in range(60):
            more = rng.randint(1, 60)
            assert reads(m, "\n" * more) == more
            length += more
            back = rng.randint(1, min(length, 200))
            assert m.rollback(back)
            length -= back
            want = b"#" if length else b"~"
            assert want in next_bytes(m)
            assert m.validate(b"\n#x\n~") == 5
            assert m.validate(b"a~") == 2
            assert m.validate(b" ~") == (1 if length else 0)


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


def test_a_captured_lexeme_begins_where_the_one_before_it_ended(tokenizer: Tokenizer) -> None:
    # The second lexeme is fallen back from after a jump, in the middle of the text and at its end.
    cases = [
        ("p t C\nC: /cd/", "abcd", [("p", b"a"), ("t", b"b")]),
        ("p t C\nC: /c/", "abc", [("p", b"a"), ("t", b"b")]),
    ]
    for rest, text, want in cases:
        grammar = f"start: {rest}\np[capture]: /a|abd/\nt[capture]: /b|bcz/\n"
        with matcher(tokenizer, grammar, no_forcing=True) as m:
            assert reads(m, text) == len(text)
            assert m.is_stopped() or m.consume(256)
            assert captures(m) == want


def test_a_captured_lexeme_has_nothing_of_a_level_that_was_dropped(tokenizer: Tokenizer) -> None:
    # The level has emitted the c, from the very row that the lexeme is then emitted from.
    grammar = "start: A t C? D?\nA: /a/\nt[capture]: /c|cd{66}e?/\nC: /c/\nD: /d/\n"
    with matcher(tokenizer, grammar, no_forcing=True) as m:
        text = "ac" + "d" * 66
        assert reads(m, text) == len(text)
        assert m.consume(256)
        assert captures(m) == [("t", text[1:].encode())]


def test_captures_pass_from_a_level_to_the_one_that_takes_its_place(tokenizer: Tokenizer) -> None:
    # Every letter could be an item; each new level comes into the state of the one above it.
    grammar = "start: item* LAST\nitem[capture]: ITEM\nITEM: /[a-d]|[a-d]+x/\nLAST: /;/\n"
    text = "abcd" * 40
    with matcher(tokenizer, grammar, no_forcing=True) as m:
        assert reads(m, text + ";") == len(text) + 1
        assert captures(m) == [("item", letter.encode()) for letter in text]


def test_a_captured_lexeme_has_the_bytes_from_before_the_jump(tokenizer: Tokenizer) -> None:
    grammar = "start: HEAD tail\nHEAD: /a|abbbc/\ntail[capture]: /b+d*/\n"
    with matcher(tokenizer, grammar) as m:
        assert reads(m, "abbdd") == 5
        assert m.consume(256)
        assert captures(m) == [("tail", b"bbdd")]


def distinct(found: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    return list(dict.fromkeys(found))


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


@pytest.mark.parametrize("n", [3, 70])
def test_nothing_follows_a_level_that_gives_bytes_back(tokenizer: Tokenizer, n: int) -> None:
    # The stop's byte is not what must follow, so as on stock this reading goes no further.
    grammar = f'start: HEAD w "!"\nHEAD: /x|x[a-z]{{{n}}}<!qq/\nw[stop="<"]: /[a-z]+/\n'
    with matcher(tokenizer, grammar, no_forcing=True) as m:
        for byte in b"x" + b"y" * n + b"<":
            assert m.consume(byte)
        assert not m.is_accepting()
        # The "!" is of the longer reading, and does not end the text in the other.
        assert next_bytes(m) == b"!"
        assert m.consume(ord("!"))
        assert not m.is_accepting()
        assert next_bytes(m) == b"q"


def test_the_end_token_ends_a_lexeme_behind_a_boundary(tokenizer: Tokenizer) -> None:
    # An empty stop is the end token: it ends w, and the text goes on.
    grammar = 'start: HEAD w "!"\nHEAD: /x|xyzq/\nw[stop=""]: /[a-z]+/\n'
    with matcher(tokenizer, grammar, no_forcing=True) as m:
        assert reads(m, "x") == 1
        assert 256 not in allowed(m)
        for byte in b"yz":
            assert m.consume(byte)
            assert 256 in allowed(m)
            assert not m.is_accepting()


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
        "start: HEAD tail\nHEAD: /a|ab{9}c/\ntail[max_tokens=2]: /b+/\n",
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


# In each grammar a boundary is pending after HEAD, and stays so to the end of the text: HEAD's long
# form reads all of it. So a mask must hold what stock allows to the one form or to the other.
SHORT, LONG = "x", "x[ -~]{200}Q"
FEATURES = {
    "stop": ('start: HEAD w "."\nw[stop=".", capture]: /[a-z]+/\n', "abc."),
    "empty stop": ('start: HEAD w "!"\nw[stop="", capture]: /[a-z]+/\n', "ab"),
    "suffix": ('start: HEAD w "!"\nw[suffix=".", capture]: /[a-z]+/\n', "abc.!"),
    "long suffix": ('start: HEAD w "!"\nw[suffix="</t>", capture]: /[a-z]+/\n', "ab</t>!"),
    "lazy": ('start: HEAD w "!"\nw[lazy, capture]: /[a-z]*;/\n', "abc;!"),
    "capture": (
        'start: HEAD pair\npair[capture]: KEY "=" value\nKEY: /[a-z]+/\nvalue[capture]: /[0-9]+/\n',
        "ab=12",
    ),
    "json": (
        'start: HEAD data "!"\n'
        'data: %json {"type": "object", "properties": {"n": {"type": "integer"}}}\n',
        '{"n": 12}!',
    ),
    "lark": ('start: HEAD inner "!"\ninner: %lark {\nstart: A B\nA: /a+/\nB: /b+|c/\n}\n', "aabb!"),
    "words": (
        'start: HEAD part "."\npart: %regex {"substring_words": "the quick brown fox"}\n',
        "quick brown.",
    ),
    "chars": ('start: HEAD part "."\npart: %regex {"substring_chars": "abcdef"}\n', "cde."),
    "and, not": ('start: HEAD WORD "."\nWORD: /[a-z]+/ & ~/.*bb.*/\n', "abab."),
    "ignore": ("start: HEAD A B\nA: /a+/\nB: /b+/\n%ignore / +/\n", "aa bb"),
    "parametric": (
        'start: HEAD perm::0x0\nperm::_: "." %if is_ones([0:2])\n'
        '    | "a" perm::set_bit(0) %if bit_clear(0)\n'
        '    | "b" perm::set_bit(1) %if bit_clear(1)\n',
        "ba.",
    ),
    "special": ("start: HEAD A <|x|> B\nA: /a+/\nB: /b+/\n", "aa\0bb"),
    "token range": ("start: HEAD A <[300-301]> B\nA: /a+/\nB: /b+/\n", "aa\0bb"),
    # The one token is "a" or what follows it: stock lets a token range go before a lexeme.
    "wildcard": ("start: HEAD A <[*]> B\nA: /a+/\nB: /b+/\n", "a\0bb"),
    "all tokens but": ("start: HEAD A <[^300]> B\nA: /a+/\nB: /b+/\n", "a\1bb"),
}


def feature_tokens() -> list[bytes]:
    """Bytes, some short words, and from 300 on special tokens: two and the end."""
    tokens = [bytes([i]) for i in range(255)]
    tokens += [bytes(Random(i).choices(b'abcx.! "{}<', k=2 + i % 3)) for i in range(45)]
    return [*tokens, b"\xff<|x|>", b"\xff<|y|>", b"\xff<end>"]


def feature_tokenizer(engine: Engine) -> Tokenizer:
    tokens = feature_tokens()
    lens = np.array([len(t) for t in tokens], np.uint32)
    data = np.frombuffer(b"".join(tokens), np.uint8)
    return Tokenizer(engine, lens, data, eos=len(tokens) - 1)


def feature_matchers(engine: Engine, grammar: str, gap: int) -> tuple[Matcher, Matcher, Matcher]:
    """Return matchers of both forms with the fallback, and of the short and the long on stock."""
    with_fallback, stock = feature_tokenizer(engine), feature_tokenizer(built("stock"))
    head = f"HEAD: /{SHORT}|{LONG}/\n"
    both = matcher(with_fallback, grammar + head, gap=gap, no_forcing=True)
    short, longer = (
        stock.matcher(options(no_forcing=True) + grammar + f"HEAD: /{form}/\n")
        for form in (SHORT, LONG)
    )
    return both, short, longer


@pytest.mark.parametrize("gap", [64, 0])
@pytest.mark.parametrize("name", FEATURES)
def test_features_with_a_boundary_pending(engine: Engine, name: str, gap: int) -> None:
    grammar, text = FEATURES[name]
    both, short, longer = feature_matchers(engine, grammar, gap)
    is_long = True
    for char in f"x{text}":
        token = 300 + ord(char) if ord(char) < 2 else ord(char)
        want = set(allowed(short)) | (set(allowed(longer)) if is_long else set())
        assert set(allowed(both)) == set(allowed(both)) == want
        assert both.is_accepting() == short.is_accepting()
        is_long = is_long and longer.consume(token)
        assert short.consume(token), short.error()
        assert both.consume(token), both.error()
    assert both.is_accepting() == short.is_accepting()
    for m in (short, both):
        assert m.is_stopped() or m.consume(302), m.error()
    assert captures(both) == captures(short)


def test_a_stop_that_spans_tokens_fails_as_on_stock(tokenizer: Tokenizer) -> None:
    grammar = 'start: HEAD w "</t>"\nHEAD: /…/\nw[stop="</t>"]: /[a-z]+/\n'
    for of, head in ((byte_tokenizer(built("stock")), "x"), (tokenizer, "x|x[a-z<]+Q")):
        with of.matcher(options(no_forcing=True) + grammar.replace("…", head)) as m:
            assert reads_until_error(m, b"xyza</t>") == len("xyza</t")
            assert "row_infos=2" in (m.error() or "")


def reads_until_error(m: Matcher, data: bytes) -> int:
    for number, byte in enumerate(data):
        if m.allowed() is None or not m.consume(byte):
            return number
    return len(data)


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


def test_a_rollback_reads_no_more_again_the_longer_the_text(tokenizer: Tokenizer) -> None:
    grammar = (
        "start: (NL | CMT | W)* END\nNL: /\\n/\nCMT: /\\n[ \\n]*#[^\\n]*/\nW: /[a-z]+/\nEND: /~/\n"
    )
    for n in (500, 2000):
        with matcher(tokenizer, grammar, no_forcing=True) as m:
            for _ in range(n):
                assert m.consume(10)
            before = fallback_stats(m)
            # A few bytes of each text are read again, and each makes one row.
            assert before["reread_bytes"] <= 2 * n + 64 * 64
            for _ in range(8):
                assert m.rollback(3)
                assert m.consume(10)
            work = {name: count - before[name] for name, count in fallback_stats(m).items()}
            assert work["reread_bytes"] <= 8 * 20
            assert work["recoveries"] <= 8 * 20


def test_many_levels_are_not_passed_through_at_each_byte(tokenizer: Tokenizer) -> None:
    # As many levels as bytes, no two in the same state.
    reread = {}
    for n in (200, 400):
        grammar = f"start: ITEM* END\nITEM: /a|a{{{n}}}c/\nEND: /d/\n"
        with matcher(tokenizer, grammar, no_forcing=True) as m:
            for _ in range(n):
                assert m.consume(ord("a"))
            before = fallback_stats(m)
            assert next_bytes(m) == b"acd"
            reread[n] = fallback_stats(m)["reread_bytes"] - before["reread_bytes"]
            assert m.validate(b"aad") == 3
            assert m.validate(b"aab") == 2
            # The longest reading has had its n, and ends with a c; END is of the shortest.
            assert m.validate(b"cad") == 3
            assert m.validate(b"db") == 1
    # Nearly all 256 bytes end all readings, and are known to before one is asked.
    assert reread[400] <= reread[200] + 8 <= 64 * 64


def test_a_byte_is_read_once_in_each_of_many_levels(tokenizer: Tokenizer) -> None:
    # What a token costs is linear in the levels: a byte is read once in each that is kept in step,
    # and in the last 65, which are not, whatever their number.
    n = 1024
    grammar = f"start: ITEM* END\nITEM: /a|a{{{n}}}c/\nEND: /d/\n"
    with matcher(tokenizer, grammar, no_forcing=True) as m:
        for at in range(n):
            before = fallback_stats(m)
            assert m.consume(ord("a"))
            work = {name: count - before[name] for name, count in fallback_stats(m).items()}
            assert work["synced_bytes"] == max(0, at - 65)
            assert work["reread_bytes"] <= 65 * 66 / 2


def test_a_forced_run_is_found_by_hints(engine: Engine) -> None:
    if not catalogue.vocabs()["llama-bpe"].here:
        pytest.skip("llama-bpe is not fetched (llgbench fetch)")
    n = 256
    grammar = (
        f"start: P Q R S T\nP: /p|pqrsz{{{n}}}1/\nQ: /q|qrsz{{{n}}}2/\nR: /r|rsz{{{n}}}3/\n"
        f"S: /s|sz{{{n}}}4/\nT: /z{{{n}}}5/\n"
    )
    with vocab.open_vocab("llama-bpe") as opened:
        tokenizer = bridge.build(engine, opened, variant.get("greedy_lexeme_fallback"))
        with matcher(tokenizer, grammar) as m:
            assert len(allowed(m)) == 1
            # Four readings, each of the first bytes read again up to 64 times, and none tried.
            assert fallback_stats(m)["reread_bytes"] <= 2 * 4 * 64 * 64
        tokenizer.close()


def test_what_a_level_costs_does_not_count_into_stocks_limits(engine: Engine) -> None:
    # The other reading makes a row of 1200 items a byte; the limit of a mask is 50,000 items.
    tokens = [b"a", b"b", b"c", b"b" * 60, b"\xff<end>"]
    lens = np.array([len(t) for t in tokens], np.uint32)
    tokenizer = Tokenizer(engine, lens, np.frombuffer(b"".join(tokens), np.uint8), eos=4)
    names = [f"r{i}" for i in range(400)]
    grammar = f"start: HEAD ({' | '.join(names)})\nHEAD: /a|ab{{300}}c/\nB: /b/\n"
    grammar += "".join(f"{name}: {name} B | B\n" for name in names)
    with matcher(tokenizer, grammar, no_forcing=True) as m:
        for token in (0, 3, 1):
            assert m.consume(token), m.error()
        assert m.rollback(1)  # the level is read again, for the mask
        assert allowed(m) == [1, 3, 4]
        assert m.reset()
        assert allowed(m) == [0]


def test_the_other_readings_slices_count(engine: Engine) -> None:
    if not catalogue.vocabs()["llama-bpe"].here:
        pytest.skip("llama-bpe is not fetched (llgbench fetch)")
    grammar = 'start: HEAD TAIL\nHEAD: /…/\nTAIL: /"[^"\\\\\\x00-\\x1F\\x7F]*"/\n'
    heads = {"both": 'a|a"b{200}c', "short": "a", "ends": 'a|a"b{5}c?'}
    work, found = {}, {}
    with vocab.open_vocab("llama-bpe") as opened:
        tokenizer = bridge.build(engine, opened, variant.get("greedy_lexeme_fallback"))
        letter = {data: token for token, data in enumerate(opened.table("token_to_piece").tokens)}
        for name, head in heads.items():
            with matcher(tokenizer, grammar.replace("…", head), no_forcing=True) as m:
                for byte in b'a"bbb':
                    assert m.consume(letter[bytes([byte])])
                found[name] = set(allowed(m))
                nodes, slices = step_stats(m)[0], step_stats(m)[5]
                work[name] = (nodes, slices)
        tokenizer.close()
    assert work["both"] == work["short"]
    assert work["both"][1] == 1
    assert found["both"] == found["short"]
    # Where the longer reading may end within a token, every token is walked. "bbd" is none then:
    # the b's complete HEAD, and no TAIL begins with d.
    assert work["ends"][1] == 0
    assert letter[b"bb"] in found["ends"]
    assert letter[b"bbb"] not in found["ends"] or letter[b"d"] in found["ends"]


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
