"""Engine specifications: what a text names, and what it asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from llgbench.engines import registry, spec
from llgbench.engines.spec import EngineSpec
from llgbench.errors import InputError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("wheel", EngineSpec("wheel")),
        ("fallback+fallback=on", EngineSpec("fallback", True)),
        ("pypi:1.9.1+fallback=off", EngineSpec("pypi:1.9.1", False)),
        ("git:a+fallback=on/x@main", EngineSpec("git:a+fallback=on/x@main")),
        ("git:x@v1+fallback=on", EngineSpec("git:x@v1", True)),
    ],
)
def test_a_specification(text: str, found: EngineSpec) -> None:
    assert spec.parse(text) == found


def test_a_file_of_that_name_is_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x+fallback=on").touch()
    assert spec.parse("x+fallback=on") == EngineSpec("x+fallback=on")


def test_what_is_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(InputError, match="fallback is on or off"):
        spec.parse("wheel+fallback=maybe")


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("wheel", True), ("pypi:1.9.0", True), ("stock", False), ("git:x@y", False),
        ("first-byte", False),
        ("fallback+fallback=on", False), ("./x.so", None),
    ],
)  # fmt: skip
def test_how_an_engine_was_built(text: str, published: bool | None) -> None:
    assert spec.parse(text).published is published


def test_where_the_variant_decides_the_option_is_refused() -> None:
    with pytest.raises(InputError, match="give --variant greedy_lexeme_fallback"):
        registry.locate("fallback+fallback=on")
