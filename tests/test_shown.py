"""What others wrote stays one line of plain text wherever it is shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llgbench import shown


@given(st.text())
def test_what_is_shown_is_one_printable_line(text: str) -> None:
    for line in (shown.visible(text), shown.in_markdown(text), shown.in_code(text)):
        assert line.isprintable()
    if text.isprintable():
        assert shown.visible(text) == text


@given(st.text(alphabet="|<*`\\a \n"))
def test_no_sign_of_markdown_stands_unescaped(text: str) -> None:
    assert re.fullmatch(r"(\\.|[^|<*`\\])*", shown.in_markdown(text))
    assert "`" not in shown.in_code(text)


@given(st.lists(st.text(alphabet="`a")))
def test_no_line_closes_its_fence(lines: list[str]) -> None:
    assert not any(shown.fence(lines) in line for line in lines)


@pytest.mark.parametrize(
    "text",
    ["1", "1,234", "0.02", "≈2.00×", "4.00 (≈4.00×)", "1,500 µs", "+3.4%", "-1.2% to +3.4%",
     "64.0 (limited)", "1e-05", "2.00 MiB", "3 tokens"],
)  # fmt: skip
def test_what_is_a_number_stands_to_the_right(text: str) -> None:
    assert shown.is_right([text, "–", ""])
    assert shown.is_right(["–"])
    assert not shown.is_right([text, "words", "words", "–"])


@pytest.mark.parametrize("text", ["1.9.1", "right in 4 of 4", "a", "2 files gone", "", "not run"])
def test_what_is_none_stands_to_the_left(text: str) -> None:
    assert not shown.is_right([text])


def test_a_markdown_table_is_aligned_and_has_no_empty_row() -> None:
    lines = shown.markdown_table(["", "µs"], [["p50", "1.00"], ["p99.9", "–"]])
    assert lines == ["|  | µs |", "| --- | ---: |", "| p50 | 1.00 |"]
    assert shown.markdown_table(["a", "b"], []) == ["| a | b |", "| --- | --- |"]
