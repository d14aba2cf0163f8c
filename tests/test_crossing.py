"""Values cross to another process unchanged, or are refused in one line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llgbench import crossing
from llgbench.errors import InputError


@dataclass(frozen=True)
class Sent:
    path: Path
    numbers: tuple[int, ...]
    names: dict[str, bytes]


@given(st.text(st.characters(codec="utf-8")), st.lists(st.integers(0, 2**63)), st.binary())
def test_what_is_sent_arrives(text: str, numbers: list[int], data: bytes) -> None:
    sent = Sent(Path(text.replace("\0", "")), tuple(numbers), {text: data})
    assert crossing.decode(crossing.encode(sent), Sent) == sent


def test_a_path_of_any_bytes_arrives() -> None:
    path = Path("caf\udce9.so")
    assert crossing.decode(crossing.encode(path), Path) == path


def test_a_numpy_integer_is_an_integer() -> None:
    assert crossing.decode(crossing.encode([np.uint64(2**64 - 1)]), list[int]) == [2**64 - 1]


def test_a_text_of_other_bytes_is_one_line() -> None:
    with pytest.raises(InputError, match=r"^caf\\udce9: a name that is not UTF-8"):
        crossing.encode({"vocab": "caf\udce9"})


def test_what_has_no_form_is_a_defect() -> None:
    with pytest.raises(NotImplementedError, match="object"):
        crossing.encode(object())
    with pytest.raises(msgspec.ValidationError):
        crossing.decode(crossing.encode("x"), int)
