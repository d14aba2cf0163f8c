from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llgbench import registry
from llgbench.engine import Engine
from llgbench.errors import EngineError, InputError, UnavailableError, UnknownNameError
from llgbench.variant import VARIANTS, get


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[Path]:
    """An empty cache for each test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLGBENCH_CACHE", str(tmp_path / "cache"))
        yield tmp_path / "cache"


def silent(_: str) -> None:
    return


def test_the_built_in_engines_come_first(wheel: Engine, tmp_path: Path) -> None:
    registry.add("a-copy", str(wheel.path), silent)
    entries = registry.entries()
    assert list(entries) == ["wheel", "stock", "fallback", "a-copy"]
    assert all(name == entry.name for name, entry in entries.items())
    assert entries["wheel"].path == registry.wheel_path()
    assert entries["stock"].remedy == "llgbench engine build stock"


def test_the_wheel_is_the_default_where_stock_is_not_built() -> None:
    assert registry.entries()["stock"].path is None
    for variant in VARIANTS.values():
        wanted = "fallback" if variant.fallback else "wheel"
        assert registry.default_for(variant) == wanted


def test_an_engine_that_is_not_built() -> None:
    with pytest.raises(UnavailableError, match="run: llgbench engine build fallback"):
        registry.get("fallback")
    why = registry.why_no_fallback()
    assert "no engine with the greedy lexeme fallback" in why
    assert why.endswith("run: llgbench engine build fallback")
    assert registry.default_for(get("greedy_lexeme_fallback")) == "fallback"


def test_by_path_and_by_name(wheel: Engine) -> None:
    assert registry.get("wheel") is wheel
    assert registry.get(str(wheel.path)) is wheel


def test_an_unknown_engine() -> None:
    with pytest.raises(UnknownNameError, match="did you mean wheel"):
        registry.get("weel")


def test_a_path_to_nothing(tmp_path: Path) -> None:
    for name in (str(tmp_path / "x"), "no-such-library.so"):
        with pytest.raises(EngineError, match="no such library"):
            registry.get(name)


def test_add_and_get(wheel: Engine, tmp_path: Path, cache: Path) -> None:
    copy = Path(shutil.copy(wheel.path, tmp_path / "copy.so"))
    entry = registry.add("mine", str(copy), silent)
    assert (entry.name, entry.spec, entry.path) == ("mine", str(copy), copy)
    assert registry.entries()["mine"].path == copy
    assert registry.get("mine").path == copy
    assert [p.name for p in (cache / "engines").iterdir()] == ["mine.json"]


def test_adding_again_replaces(wheel: Engine, tmp_path: Path) -> None:
    copy = Path(shutil.copy(wheel.path, tmp_path / "copy.so"))
    registry.add("mine", str(wheel.path), silent)
    registry.add("mine", str(copy), silent)
    assert registry.get("mine").path == copy
    assert list(registry.entries()).count("mine") == 1


def test_a_relative_path_is_kept_whole(
    wheel: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(wheel.path, tmp_path / "copy.so")
    monkeypatch.chdir(tmp_path)
    registry.add("mine", "copy.so", silent)
    monkeypatch.chdir("/")
    assert registry.get("mine").path == (tmp_path / "copy.so").resolve()


def test_a_library_that_is_gone(wheel: Engine, tmp_path: Path) -> None:
    copy = Path(shutil.copy(wheel.path, tmp_path / "copy.so"))
    registry.add("mine", str(copy), silent)
    copy.unlink()
    assert registry.entries()["mine"].path is None
    with pytest.raises(UnavailableError, match=f"run: llgbench engine add mine {copy}"):
        registry.get("mine")


@pytest.mark.parametrize("name", ["", " ", "a b", "../x", "a/b", "-x", ".x", "é", "a\n", "a|b"])
def test_a_name_that_cannot_be(wheel: Engine, name: str, cache: Path) -> None:
    with pytest.raises(InputError, match=r"letters, digits and \._\+-"):
        registry.add(name, str(wheel.path), silent)
    assert not cache.exists()


@pytest.mark.parametrize("name", ["wheel", "stock", "fallback"])
def test_a_name_that_is_taken(wheel: Engine, name: str) -> None:
    with pytest.raises(InputError, match="built-in engine"):
        registry.add(name, str(wheel.path), silent)


def test_what_cannot_serve_is_not_registered(tmp_path: Path, cache: Path) -> None:
    bad = tmp_path / "bad.so"
    bad.write_text("no library\n" * 99)
    for spec in (str(bad), str(tmp_path / "nothing.so")):
        with pytest.raises(EngineError):
            registry.add("mine", spec, silent)
    assert not cache.exists()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"spec": "x"}', '{"spec": 1, "path": "x"}', "\0"]
)
def test_a_damaged_registration(wheel: Engine, cache: Path, content: str) -> None:
    registry.add("mine", str(wheel.path), silent)
    file = cache / "engines" / "mine.json"
    file.write_text(content)
    with pytest.raises(
        EngineError, match=r"mine\.json is damaged .* add the engine again"
    ) as caught:
        registry.entries()
    assert "\n" not in str(caught.value)


def test_a_registration_that_is_not_text(wheel: Engine, cache: Path) -> None:
    registry.add("mine", str(wheel.path), silent)
    (cache / "engines" / "mine.json").write_bytes(b"\xff\xfe")
    with pytest.raises(EngineError, match=r"mine\.json is damaged"):
        registry.get("wheel")


def test_a_cache_that_cannot_be_written(wheel: Engine, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(InputError, match="LLGBENCH_CACHE names another cache"):
        registry.add("mine", str(wheel.path), silent)


@pytest.mark.parametrize("version", ["", "latest", "../1.7.6", "1.7.6/..", "-1", "1 2", "1;2"])
def test_a_version_that_is_none(version: str) -> None:
    with pytest.raises(InputError, match="names no release"):
        registry.get(f"pypi:{version}")


def test_a_release_that_does_not_exist(old_release: Engine, cache: Path) -> None:
    """With `old_release`, so that a package index that cannot be reached skips this."""
    with pytest.raises(EngineError, match=r"no wheel of llguidance 9999\.0") as caught:
        registry.get("pypi:9999.0")
    assert "\n" not in str(caught.value)
    assert not cache.exists()


def test_a_fetched_release_is_kept(old_release: Engine, cache: Path) -> None:
    folder = cache / "releases" / old_release.release
    folder.mkdir(parents=True)
    shutil.copy(old_release.path, folder)
    # pip would have to be asked for it: it is in the cache, so it is not
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(cache / "no-python"))
        assert registry.fetch_release(old_release.release) == folder / old_release.path.name
    lines: list[str] = []
    entry = registry.add("old", f"pypi:{old_release.release}", lines.append)
    assert lines == [f"fetching llguidance {old_release.release}"]
    assert entry.spec == f"pypi:{old_release.release}"
    table = json.loads((cache / "engines" / "old.json").read_text())
    assert table == {"spec": entry.spec, "path": str(folder / old_release.path.name)}
