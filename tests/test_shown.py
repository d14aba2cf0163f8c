"""What others wrote stays one line of plain text wherever it is shown."""

from __future__ import annotations

import re

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
