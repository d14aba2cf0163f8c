from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from llgbench.inputs.case import Case, Text
from llgbench.measure.hints import hint

ORDER = "another order than in the schema"
NEWLINE = "ends with a newline"
SCHEMA: dict[str, Any] = {
    "properties": {"a": {"$ref": "#/$defs/in"}, "b": {"items": {"$ref": "#/$defs/in"}}},
    "$defs": {"in": {"properties": {"x": {}, "y": {}}}, "round": {"$ref": "#/$defs/round"}},
}


def of(data: bytes, reject_at: int, schema: Any = SCHEMA) -> str:
    subject = Case("s", "json_schema", json.dumps(schema), ROOT, "", ())
    return hint(subject, Text("t", data), reject_at, ["<|a|>"])


@pytest.mark.parametrize(
    ("data", "reject_at", "why"),
    [
        (b"{}\n", 2, NEWLINE),
        (b"{}\r\n", 2, NEWLINE),
        (b"{}\n", 1, ""),
        (b'{"b": 1, "a": 2}', 6, ORDER),
        (b'{"a": 2, "b": 1}', 6, ""),
        (b'{"c": 2, "a": 1}', 2, ""),
        (b'{"a": {"y": 1, "x": 2}}', 9, ORDER),
        (b'{"b": [{"x": 1}, {"y": 1, "x": 2}]}', 9, ORDER),
        (b"12", 1, ""),
        (b"[", 1, ""),
    ],
)
def test_of_a_schema(data: bytes, reject_at: int, why: str) -> None:
    found = of(data, reject_at)
    assert why in found
    assert bool(found) == bool(why)


def test_references_in_a_circle_and_to_nothing() -> None:
    for target in ("#/$defs/round", "#/$defs/none", "elsewhere.json", "#"):
        assert of(b'{"y": 1, "x": 2}', 2, {**SCHEMA, "$ref": target}) == ""


def test_the_name_of_a_special_token() -> None:
    subject = Case("s", "lark", "start: <|a|>", ROOT, "", ())
    for reject_at in (1, 3, 5):
        assert "<|a|> is plain text here" in hint(
            subject, Text("t", b"x<|a|>"), reject_at, ["<|b|>", "<|a|>"]
        )
    assert hint(subject, Text("t", b"x<|a|>"), 0, ["<|a|>"]) == ""
    assert hint(subject, Text("t", b"<|a|>", special_tokens=None), 0, ["<|a|>"]) == ""


@given(st.recursive(st.none() | st.booleans() | st.text(max_size=3), lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abxy"), inner, max_size=4)
)))  # fmt: skip
def test_whatever_the_text_a_hint_is_a_line(data: Any) -> None:
    found = of(json.dumps(data).encode(), 0)
    assert found in ("", of(b'{"b": 1, "a": 2}', 6))
