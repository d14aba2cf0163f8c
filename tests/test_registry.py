from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import FUZZ
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llgbench.engines import registry, store
from llgbench.engines.engine import Engine
from llgbench.errors import (
    EngineError,
    InputError,
    LlgbenchError,
    UnavailableError,
    UnknownNameError,
)
from llgbench.inputs.variant import VARIANTS, get


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
    assert list(entries) == ["wheel", "stock", "first-byte", "fallback", "a-copy"]
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


@pytest.mark.parametrize("name", ["wheel", "stock", "first-byte", "fallback"])
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
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"spec": "x"}',
        '{"spec": 1, "path": "x"}',
        "\0",
        "[" * 5000,
        "9" * 9000,
    ],
)
def test_a_damaged_registration_is_the_fault_of_its_engine(
    wheel: Engine, cache: Path, content: str
) -> None:
    registry.add("mine", str(wheel.path), silent)
    file = cache / "engines" / "mine.json"
    file.write_text(content)
    with pytest.raises(EngineError, match=r"damaged .*mine\.json.*add it again") as caught:
        registry.get("mine")
    assert "\n" not in str(caught.value)
    assert registry.get("wheel") is wheel


def test_a_registration_that_is_no_text_or_no_file(wheel: Engine, cache: Path) -> None:
    folder = cache / "engines"
    folder.mkdir(parents=True)
    (folder / "bytes.json").write_bytes(b"\xff\xfe")
    (folder / "folder.json").mkdir()
    os.mkfifo(folder / "fifo.json")
    (folder / "device.json").symlink_to("/dev/zero")
    for name in ("bytes", "folder", "fifo", "device"):
        with pytest.raises(EngineError, match=f"engine {name} has a damaged registration"):
            registry.get(name)
    # Nor does a file take the place of a built-in engine, or bring a name that cannot be.
    (folder / "wheel.json").write_text(json.dumps({"spec": "x", "path": "/x"}))
    (folder / "a b.json").write_text(json.dumps({"spec": "x", "path": "/x"}))
    assert registry.get("wheel") is wheel
    assert "a b" not in registry.entries()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@pytest.mark.fuzz
@settings(
    max_examples=FUZZ,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.binary(max_size=60)
    | st.builds(
        lambda spec, path: json.dumps({"spec": spec, "path": path}).encode(),
        values | st.sampled_from(["pypi:1.7.6", "git:x@y", "build:stock", "./x.so"]),
        values | st.sampled_from(["/x" * 3000, "a\0b", "/dev/zero", "/", "\udcff"]),
    )
)
def test_no_registration_ends_in_a_traceback(cache: Path, content: bytes) -> None:
    folder = cache / "engines"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "odd.json").write_bytes(content)
    with pytest.raises(LlgbenchError):
        registry.get("odd")
    assert list(registry.entries()) == ["wheel", "stock", "first-byte", "fallback", "odd"]


def test_what_the_cache_keeps_is_checked_before_it_is_loaded(
    old_release: Engine, cache: Path
) -> None:
    library = cache / "releases" / "1.9.0" / old_release.path.name
    store.keep(library, old_release.path.read_bytes(), "1.9.0")
    registry.add("old", "pypi:1.9.0", silent)
    with library.open("r+b") as file:
        file.seek(5000)
        file.write(b"?")
    for name in ("old", "pypi:1.9.0"):
        with pytest.raises(EngineError, match=r"was altered since it was kept .* not loaded"):
            registry.get(name)
    # Without its sha256 it is not taken for kept, and would be fetched again.
    library.with_name(f"{library.name}.sha256").unlink()
    with pytest.raises(UnavailableError, match=r"run: llgbench engine add old pypi:1\.9\.0"):
        registry.get("old")


def test_paths_of_any_bytes(wheel: Engine, tmp_path: Path, cache: Path) -> None:
    for name in ("caf\udce9.so", 'a@b "c".so.1', "x+fallback=on.so", "library"):
        copy = Path(shutil.copy(wheel.path, tmp_path / name))
        assert registry.get(str(copy)).sha256 == wheel.sha256
        assert registry.add("mine", str(copy), silent).path == copy
        assert registry.get("mine").path == copy


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
    with pytest.raises(EngineError, match=r"no wheel of llguidance 9999\.0 .* newest .*1\.9\.1"):
        registry.get("pypi:9999.0")
    assert not list(cache.glob("releases/*/*"))


def test_a_fetched_release_is_kept(old_release: Engine, cache: Path) -> None:
    library = cache / "releases" / old_release.release / old_release.path.name
    store.keep(library, old_release.path.read_bytes(), old_release.release)
    lines: list[str] = []
    entry = registry.add("old", f"pypi:{old_release.release}", lines.append)
    assert lines == []  # nothing is fetched, for it is there
    assert (entry.spec, entry.path) == (f"pypi:{old_release.release}", library)
    table = json.loads((cache / "engines" / "old.json").read_text())
    assert table == {"spec": entry.spec, "path": str(library)}
