"""Sides of a comparison: private copies, what is identical, how each was built."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from llgbench.compare import run as compare
from llgbench.compare import side as pure
from llgbench.compare import sides
from llgbench.compare.comparison import IDENTICAL, Comparison, Plan
from llgbench.compare.run import Timed
from llgbench.compare.side import SIDES, Side
from llgbench.engines.engine import Engine
from llgbench.errors import EngineError, InputError
from llgbench.report import pull_request

PLAN = Plan(("llama-spm",), ("listed",), "greedy_tokenize", 0.02, 30.0)


@pytest.fixture(scope="module")
def side(wheel: Engine) -> Side:
    return sides.resolve("wheel", lambda _: None)


def test_both_sides_are_copies_of_their_own(side: Side, tmp_path: Path) -> None:
    base, head = (sides.private(side, tmp_path, name) for name in SIDES)
    assert len({base.library, head.library, side.library}) == 3
    assert base.library.read_bytes() == head.library.read_bytes() == side.library.read_bytes()
    assert replace(base, library=side.library) == side


def test_a_comparison_measures_copies_and_names_the_originals(
    side: Side, old_release: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Side] = []

    def look(base: Side, head: Side, plan: Plan, say: object) -> Timed:
        seen.extend((base, head))
        assert base.library.is_file()
        assert head.library.is_file()
        return Timed(Comparison(base, head, plan), {}, ())

    monkeypatch.setattr(compare, "compare", look)
    for head, folder in ((str(old_release.path), "two"), (None, "self")):
        found, _ = compare.run("wheel", head, PLAN, tmp_path / folder)
        assert found.base.library == side.library
        assert found.head.library == (old_release.path if head else side.library)
        assert found.self_test is (head is None)
    assert len({each.library for each in seen}) == 4
    assert not {each.library for each in seen} & {side.library, old_release.path}
    assert not any(each.library.exists() for each in seen)  # nothing of the copies stays


def test_a_library_that_changes_meanwhile_is_not_compared(wheel: Engine, tmp_path: Path) -> None:
    path = Path(shutil.copy(wheel.path, tmp_path / "mine.so"))
    mine = sides.resolve(str(path), lambda _: None)
    with path.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(EngineError, match="changed while it was read"):
        sides.private(mine, tmp_path, "base")


def test_equal_libraries_end_at_once(side: Side, tmp_path: Path) -> None:
    copy = shutil.copy(side.library, tmp_path / "copy.so")
    found, where = compare.run("wheel", str(copy), PLAN, tmp_path / "out")
    assert (found.verdict, found.ended, found.failed) == ("identical", IDENTICAL, False)
    assert (found.rows, found.processes) == ((), 0)
    text = pull_request.section(found)
    assert "**identical: the same library**" in text
    assert "0 processes" not in text
    assert '"line": "identical: the same library"' in (where / "comparison.json").read_text()


def test_one_library_under_two_options_is_not_identical(side: Side) -> None:
    assert side.is_same_as(side)
    assert not side.is_same_as(replace(side, fallback="greedy_lexeme_fallback"))
    assert not side.is_same_as(replace(side, sha256="0" * 64))


def test_paths_that_look_like_options(wheel: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "a+fallback=on"
    folder.mkdir()
    for name in ("a@b.so", "x+fallback=on.so", "it's.so"):
        path = Path(shutil.copy(wheel.path, folder / name))
        found = sides.resolve(str(path), lambda _: None)
        assert (found.library, found.fallback) == (path, None)
        assert sides.resolve(f"{path}+fallback=off", lambda _: None).library == path
    with pytest.raises(InputError, match="fallback is on or off"):
        sides.resolve("wheel+fallback=maybe", lambda _: None)


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        ("wheel", "stock", True), ("pypi:1.9.1", "fallback+fallback=on", True),
        ("git:x@main", "wheel", True), ("wheel", "pypi:1.9.0", False), ("stock", "fallback", False),
        ("git:x@a", "git:x@b", False), ("./mine.so", "wheel", False),
    ],
)  # fmt: skip
def test_another_compiler_is_said(side: Side, base: str, head: str, said: bool) -> None:
    caution = pure.caution(replace(side, spec=base), replace(side, spec=head, sha256="0"))
    assert (caution is not None) is said
    found = Comparison(replace(side, spec=base), replace(side, spec=head, sha256="0"), PLAN)
    assert ("compiler and profile differ" in pull_request.section(found)) is said
