from __future__ import annotations

from itertools import pairwise

import pytest

from llgbench.errors import UnknownNameError
from llgbench.inputs import variant


def test_the_names() -> None:
    assert variant.DEFAULT_VARIANTS == (
        "baseline",
        "token_to_piece",
        "greedy_tokenize",
        "greedy_lexeme_fallback",
    )
    assert set(variant.VARIANTS) == {*variant.DEFAULT_VARIANTS, "sentinel"}
    assert all(name == variant.get(name).name for name in variant.VARIANTS)
    assert all(v.summary for v in variant.VARIANTS.values())


def test_each_adds_one_thing_to_the_one_before() -> None:
    chain = [variant.get(name) for name in variant.DEFAULT_VARIANTS]
    for before, after in pairwise(chain):
        a, b = vars(before), vars(after)
        changed = {key for key in a if a[key] != b[key]} - {"name", "summary"}
        assert len(changed) == 1, (before.name, after.name, changed)


def test_only_the_fallback_asks_for_the_fallback() -> None:
    asking = [name for name, v in variant.VARIANTS.items() if v.fallback]
    assert asking == ["greedy_lexeme_fallback"]


@pytest.mark.parametrize("name", variant.VARIANTS)
def test_the_reference_has_exact_bytes_the_same_lexer_and_forces_nothing(name: str) -> None:
    wanted = variant.get(name)
    reference = variant.reference_of(wanted)
    assert reference.token_bytes == "token_to_piece"
    assert reference.tokenize == "never"
    assert reference.fallback == wanted.fallback
    assert reference not in variant.VARIANTS.values()


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean greedy_tokenize"):
        variant.get("greedy-tokenise")
