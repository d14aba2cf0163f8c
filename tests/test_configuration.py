from __future__ import annotations

import pytest
from conftest import CATALOGUE, ROOT
from hypothesis import given
from hypothesis import strategies as st

from llgbench.errors import InputError
from llgbench.inputs import case_file
from llgbench.inputs.configuration import CHECKPOINTS, Configuration, grid
from llgbench.inputs.variant import DEFAULT_VARIANTS

NAMES = st.from_regex(r"[A-Za-z0-9._@+-]{1,20}", fullmatch=True)
CASES = tuple(case_file.names(ROOT))


@given(NAMES, NAMES, NAMES, st.just("default") | NAMES)
def test_parse_reads_what_str_wrote(c: str, v: str, variant: str, engine: str) -> None:
    configuration = Configuration(c, v, variant, engine)
    assert Configuration.parse(str(configuration)) == configuration


def test_the_default_engine_is_not_written() -> None:
    assert str(Configuration("a", "b", "c")) == "a | b | c"
    assert str(Configuration("a", "b", "c", "wheel")) == "a | b | c | wheel"
    assert Configuration.parse(" a|b |c ") == Configuration("a", "b", "c")


@pytest.mark.parametrize("text", ["", "a", "a | b", "a | b | c | d | e"])
def test_too_few_or_too_many_parts(text: str) -> None:
    with pytest.raises(InputError, match="is not a configuration"):
        Configuration.parse(text)


def test_configurations_sort_by_case_first() -> None:
    assert Configuration("a", "z", "z") < Configuration("b", "a", "a")


def test_the_grids_name_what_exists() -> None:
    full = grid("full", DEFAULT_VARIANTS, CASES, tuple(CATALOGUE))
    assert {c.case for c in full} == set(CASES)
    assert {c.vocab for c in full} == set(CATALOGUE)
    assert {c.engine for c in full} == {"default"}


@pytest.mark.parametrize("profile", ["quick", "full"])
def test_a_grid_lists_each_once_with_its_variants_together(profile: str) -> None:
    assert profile in ("quick", "full")
    listed = grid("full" if profile == "full" else "quick", DEFAULT_VARIANTS, CASES, (*CATALOGUE,))
    assert len(set(listed)) == len(listed)
    n = len(DEFAULT_VARIANTS)
    for start in range(0, len(listed), n):
        group = listed[start : start + n]
        assert len({(c.case, c.vocab) for c in group}) == 1
        assert tuple(c.variant for c in group) == DEFAULT_VARIANTS


def test_quick_is_part_of_full() -> None:
    quick = grid("quick", DEFAULT_VARIANTS, CASES, tuple(CATALOGUE))
    assert set(quick) <= set(grid("full", DEFAULT_VARIANTS, CASES, tuple(CATALOGUE)))


def test_the_checkpoints_stand_around_the_threshold() -> None:
    sizes = [int(name.partition("@")[2]) for name in CHECKPOINTS]
    assert sizes == sorted(sizes)
    assert {64, 65} <= set(sizes)
    assert set(CHECKPOINTS) <= set(CASES)
