"""White space and grammars: what every engine is given of one case."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llgbench.engines import peers
from llgbench.errors import UnavailableError
from llgbench.inputs import case_file as cases
from llgbench.inputs.case import REJECTED, Outcome, Text
from llgbench.inputs.configuration import QUICK_JSON_CASES
from llgbench.peers import grammars
from llgbench.peers.grammars import place, respaced

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)  # fmt: skip


@given(VALUES, st.sampled_from([None, 2]))
def test_json_is_written_as_python_would(value: object, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False).encode()
    spaced, compact = respaced(text, " "), respaced(text, "")
    assert spaced.decode() == json.dumps(value, ensure_ascii=False)
    assert compact.decode() == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@given(VALUES, st.sampled_from(["", " "]))
def test_every_byte_that_stays_is_found_again(value: object, after: str) -> None:
    text = json.dumps(value, indent=1).encode()
    out = respaced(text, after)
    places = [place(text, at, after) for at in range(len(text) + 1)]
    stayed = [(old, new) for old, new in enumerate(places) if new is not None]
    assert stayed.pop() == (len(text), len(out))
    assert all(text[old] == out[new] for old, new in stayed)
    assert bytes(text[old] for old, _ in stayed).decode() == json.dumps(
        value, separators=(",", ":")
    )


@pytest.mark.parametrize("name", QUICK_JSON_CASES)
@pytest.mark.parametrize("white_space", ["spaced", "compact"])
def test_a_record_moves_with_its_byte(name: str, white_space: grammars.WhiteSpace) -> None:
    before = cases.load(name)
    after = grammars.written(before, white_space)
    old = {text.name: text for text in before.texts}
    for text in after.texts:
        was, now = old[text.name].stock, text.stock
        if was is None or was.accepted:
            assert now == was
        elif now == REJECTED:
            assert was.reject_at is not None
            assert old[text.name].data[was.reject_at] in b" \t\n\r"  # the byte itself is gone
        else:
            assert was.reject_at is not None
            assert now is not None
            assert now.reject_at is not None
            rest = old[text.name].data[was.reject_at :]
            assert text.data[now.reject_at : now.reject_at + 1] == rest[:1]


def test_a_record_on_a_dropped_byte_says_no_place() -> None:
    text = Text("x", b'{"a":  1}', stock=Outcome(5), fallback=Outcome(7))
    moved = grammars._written(text, "")
    assert moved.data == b'{"a":1}'
    assert (moved.stock, moved.fallback) == (REJECTED, Outcome(5))


def test_texts_that_become_one_are_one() -> None:
    before = cases.load("json-tool-call")
    texts = [text.data for text in grammars.written(before, "compact").texts]
    assert len(texts) == len(set(texts)) < len(before.texts)


def test_llguidance_is_told_the_separators() -> None:
    case = cases.load("json-tool-call")
    for white_space, settings in (
        ("flexible", {"whitespace_flexible": True}),
        ("spaced", {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}),
        ("compact", {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}),
    ):
        source = grammars.source(None, case, white_space)  # type: ignore[arg-type]
        schema = json.loads(source.text.partition("%json")[2])
        assert schema.pop("x-guidance") == settings
        assert schema == json.loads(case.source)


def test_what_an_engine_cannot_be_told_is_not_available() -> None:
    schema, lark = cases.load("json-tool-call"), cases.load("listed")
    with pytest.raises(UnavailableError, match="glrmask"):
        grammars.source(peers.parse("glrmask:0.5.0"), schema, "compact")
    for name in ("gbnf", "outlines:0.2.14"):
        with pytest.raises(UnavailableError, match="does not read Lark"):
            grammars.source(peers.parse(name), lark, "spaced")


def test_lark_is_handed_over_as_it_stands() -> None:
    lark = cases.load("listed")
    assert grammars.source(peers.parse("xgrammar:0.2.9"), lark, "spaced").text == lark.source


@pytest.mark.parametrize("white_space", grammars.WHITE_SPACES)
def test_gbnf_has_the_white_space(white_space: grammars.WhiteSpace) -> None:
    text = grammars.source(peers.parse("gbnf"), cases.load("json-tool-call"), white_space).text
    (rule,) = [line for line in text.splitlines() if line.startswith("space ::=")]
    assert rule == ("space ::= [ \\t\\n\\r]*" if white_space == "flexible" else 'space ::= ""')
    assert ('": "' in text, '":" space' in text) == (
        white_space == "spaced", white_space == "flexible"
    )  # fmt: skip
