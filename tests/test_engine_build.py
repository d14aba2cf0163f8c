"""Building engines: what needs no Rust is tested with a cargo of our own, the rest is skipped."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from fallback_engine import built

from llgbench import paths
from llgbench.engines import build as engine_build
from llgbench.engines import cargo, store
from llgbench.errors import EngineError, InputError, UnavailableError, UnknownNameError

PATCH = """\
--- a/one.txt
+++ b/one.txt
@@ -2,2 +2,3 @@ context
 two
-three
+3
+3.5
@@ -5 +6 @@
-five
+5
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own with engine/, and an empty cache."""
    root = tmp_path / "checkout"
    shutil.copytree(paths.root() / "engine", root / "engine")
    (root / "grammars").mkdir()
    (root / "vocabs").mkdir()
    (root / "vocabs/vocabs.toml").touch()
    monkeypatch.setenv(paths.ROOT_VARIABLE, str(root))
    monkeypatch.setenv(paths.CACHE_VARIABLE, str(tmp_path / "cache"))
    return root


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a rustc that only has a version, and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script(folder / "rustc", "echo rustc 1.0.0")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    cargo.rustc_version.cache_clear()
    yield_to = folder
    return yield_to


@pytest.fixture(autouse=True)
def forget_rustc() -> object:
    yield
    cargo.rustc_version.cache_clear()


def script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_patches_apply_exactly(tmp_path: Path) -> None:
    target = tmp_path / "one.txt"
    target.write_text("one\ntwo\nthree\nfour\nfive\n")
    engine_build.apply_patch(PATCH, tmp_path)
    assert target.read_text() == "one\ntwo\n3\n3.5\nfour\n5\n"


@pytest.mark.parametrize("text", ["one\ntwo\nthree\nfour\nFIVE\n", "zero\none\ntwo\nthree\n", ""])
def test_a_patch_that_does_not_fit_changes_nothing(tmp_path: Path, text: str) -> None:
    target = tmp_path / "one.txt"
    target.write_text(text)
    with pytest.raises(
        EngineError, match=r"patch: one\.txt: line \d+ is not what the patch expects"
    ):
        engine_build.apply_patch(PATCH, tmp_path)
    assert target.read_text() == text


def test_a_patch_for_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"patch: one\.txt: No such file"):
        engine_build.apply_patch(PATCH, tmp_path)


def test_unknown_flavours() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown engine 'stok'; did you mean stock\?"):
        engine_build.build("stok")


def test_the_key_is_of_all_inputs(checkout: Path, tools: Path) -> None:
    stock, first_byte, fallback = map(engine_build.input_key, engine_build.FLAVOURS)
    assert len({stock, first_byte, fallback}) == 3
    for name in ("Cargo.lock", "src/lib.rs", "common.patch", "first-byte.patch", "fallback.rs"):
        file = checkout / "engine" / name
        before = file.read_text()
        file.write_text(before + "\n")
        of_one = {"fallback.rs": "fallback", "first-byte.patch": "first-byte"}.get(name)
        for flavour, key in (("stock", stock), ("first-byte", first_byte), ("fallback", fallback)):
            assert (engine_build.input_key(flavour) != key) is (of_one in (None, flavour))
        file.write_text(before)
    script(tools / "rustc", "echo rustc 1.0.1")
    cargo.rustc_version.cache_clear()
    assert engine_build.input_key("stock") != stock


def test_a_missing_file_of_engine(checkout: Path, tools: Path) -> None:
    (checkout / "engine/fallback.rs").unlink()
    engine_build.input_key("stock")
    with pytest.raises(EngineError, match=r"engine/fallback\.rs: No such file"):
        engine_build.cached("fallback")


def test_without_rust_it_says_so(checkout: Path, tools: Path) -> None:
    assert cargo.missing() == ("no cargo on PATH: install Rust (stable) to build engines")
    assert engine_build.cached("stock") is None
    with pytest.raises(UnavailableError, match="no cargo on PATH"):
        engine_build.build("stock")
    (tools / "rustc").unlink()
    cargo.rustc_version.cache_clear()
    if shutil.which("rustc") is None:
        assert cargo.missing() == (
            "no cargo and no rustc on PATH: install Rust (stable) to build engines"
        )
        assert engine_build.cached("stock") is None


def test_what_was_built_is_found_without_building(checkout: Path, tools: Path) -> None:
    folder = paths.cache() / "engines" / f"stock-{engine_build.input_key('stock')}"
    library = folder / "libllgbench_engine.so"
    store.keep(library, b"a library", "1.9.1")
    assert engine_build.cached("stock") == library
    assert engine_build.build("stock") == library
    assert engine_build.cached("fallback") is None
    library.write_bytes(b"another one")
    with pytest.raises(EngineError, match="was altered since it was kept"):
        engine_build.build("stock")


def test_a_failure_of_cargo_shows_its_last_lines_and_the_log(checkout: Path, tools: Path) -> None:
    script(tools / "cargo", "echo first >&2; echo error: no route to the registry >&2; exit 101")
    with pytest.raises(EngineError, match=r"cargo fetch fails: .*; the log is ") as caught:
        engine_build.build("stock")
    assert "error: no route to the registry" in str(caught.value)
    assert "\n" not in str(caught.value)
    (log,) = (paths.cache() / "engines").glob("stock-*.log")
    assert str(log) in str(caught.value)
    assert "first" in log.read_text()
    assert engine_build.cached("stock") is None


def fake_registry(checkout: Path, tools: Path, archive: bytes) -> None:
    """A cargo whose registry has this archive for llguidance, and which builds a library."""
    registry = checkout / "registry"
    for folder in ("cache/x", "src/x/llguidance-1.9.1"):
        (registry / folder).mkdir(parents=True)
    (registry / "cache/x/llguidance-1.9.1.crate").write_bytes(archive)
    manifest = registry / "src/x/llguidance-1.9.1/Cargo.toml"
    answer = checkout / "metadata.json"
    answer.write_text(
        json.dumps({"packages": [{"name": "llguidance", "manifest_path": str(manifest)}]})
    )
    script(
        tools / "cargo",
        f'case "$1" in metadata) cat "{answer}";; build) pwd > "{checkout}/built-in"; '
        'mkdir -p "$CARGO_TARGET_DIR/release"; '
        'echo library > "$CARGO_TARGET_DIR/release/libllgbench_engine.so";; esac',
    )


def test_a_crate_with_another_checksum_is_refused(checkout: Path, tools: Path) -> None:
    fake_registry(checkout, tools, b"tampered")
    found = hashlib.sha256(b"tampered").hexdigest()
    with pytest.raises(EngineError, match=rf"sha256 {found}, but llguidance 1\.9\.1 is 04ede1"):
        engine_build.build("stock")


def test_a_build_is_laid_out_and_installed(checkout: Path, tools: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, text in [("Cargo.toml", "a\nb\n"), ("src/ffi.rs", "x\n")]:
            info = tarfile.TarInfo(f"llguidance-1.9.1/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    (checkout / "engine/common.patch").write_text(
        "--- a/src/ffi.rs\n+++ b/src/ffi.rs\n@@ -1 +1 @@\n-x\n+y\n"
    )
    lock = checkout / "engine/Cargo.lock"
    pinned = lock.read_text().replace(
        "04ede1356c8ee73a0d29ef573dbeb2123a1667cfc3ebfc7e2c41346a6e92c3c8",
        hashlib.sha256(archive.getvalue()).hexdigest(),
    )
    lock.write_text(pinned)
    fake_registry(checkout, tools, archive.getvalue())
    stages: list[str] = []
    library = engine_build.build("stock", report=stages.append)
    assert library.read_text() == "library\n"
    assert library.parent.name == f"stock-{engine_build.input_key('stock')}"
    assert [stage.split(":")[0] for stage in stages] == ["stock", "stock"]
    stages.clear()
    assert store.release_of(library) == "1.9.1"
    assert engine_build.build("stock", report=stages.append) == library
    assert stages == []


@pytest.mark.parametrize("flavour", engine_build.FLAVOURS)
def test_engines_have_the_c_api_and_more(flavour: str) -> None:
    found = built(flavour)
    assert found.release == "1.9.1"
    assert found.symbol("llg_par_compute_mask") is not None
    for name in ("step_stats", "drop_mask_cache", "num_captures", "capture"):
        assert found.symbol(f"llgx_matcher_{name}") is not None
    has_fallback = flavour == "fallback"
    assert (found.symbol("llgx_matcher_fallback_stats") is not None) is has_fallback
    assert found.fallback_option == ("greedy_lexeme_fallback" if has_fallback else None)


def test_a_cache_that_cannot_be_written(
    checkout: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tools / "cargo", "exit 1")
    (checkout / "file").touch()
    monkeypatch.setenv(paths.CACHE_VARIABLE, str(checkout / "file" / "cache"))
    with pytest.raises(InputError, match=r"cannot write .*LLGBENCH_CACHE names another cache"):
        engine_build.build("stock")
