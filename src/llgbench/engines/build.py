"""Building the suite's own engines: llguidance as published, and with a patch.

All flavours are the published crate, pinned by the checksum in engine/Cargo.lock, and are built
from the same profile; see engine/README.md. What is built is kept under the cache by a key of all
that went in, so building again is a look-up.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

from llgbench import paths
from llgbench.engines import cargo, store
from llgbench.engines.spec import BUILT, FALLBACK, FIRST_BYTE, STOCK
from llgbench.errors import EngineError, UnavailableError, UnknownNameError

FLAVOURS = BUILT

CRATE = "llguidance"
# What stands in engine/: sources of all flavours; by flavour, its patches in their order, and its
# modules with their places in the crate.
_COMMON = ("Cargo.toml", "Cargo.lock", "src/lib.rs", "common.patch")
_PATCHES = {STOCK: (), FIRST_BYTE: ("first-byte.patch",), FALLBACK: ("fallback.patch",)}
_MODULES = {
    FALLBACK: {
        "fallback.rs": "src/earley/parser/fallback.rs",
        "fallback_tests.rs": "src/earley/parser/fallback/tests.rs",
    }
}
_LIBRARY = "libllgbench_engine.so"
# How an engine is built, beside the files; these are part of the key. A change of `_lay_out` that
# changes what is built takes a new number.
_LAYOUT = 2
_COMMAND = ("build", "--release", "--locked", "--offline")
_FEATURES: dict[str, tuple[str, ...]] = {FALLBACK: ("--features", "fallback")}


def input_key(flavour: str) -> str:
    """Return the key of a flavour: a hash of all that goes into building it.

    Raises:
        UnknownNameError: there is no such flavour.
        UnavailableError: Rust is missing, so its version cannot go into the key.
        EngineError: a file of engine/ is missing.
    """
    sources = [part for name in _sources(flavour) for part in (name, _read(name))]
    return cargo.key(f"{_LAYOUT} {_COMMAND} {_features(flavour)}", *sources)


def cached(flavour: str) -> Path | None:
    """Return the library of a flavour if it was built from these inputs before, else None.

    Its content is checked when it is loaded.

    Raises:
        UnknownNameError: there is no such flavour.
        EngineError: a file of engine/ is missing.
    """
    try:
        library = _place(flavour)
    except UnavailableError:
        return None
    return library if store.is_kept(library) else None


def build(flavour: str, *, report: Callable[[str], None] = lambda _: None) -> Path:
    """Build a flavour, unless that was done before, and return its library.

    Args:
        flavour: one of FLAVOURS.
        report: called with a line for each stage that takes time.

    Raises:
        UnknownNameError: there is no such flavour.
        UnavailableError: what is needed to build is missing.
        InputError: the cache cannot be written.
        EngineError: the crate cannot be had, its checksum is wrong, a patch does not apply, cargo
            fails (the message has its words and the path of the log), or the library in the cache
            was altered.
    """
    found = cached(flavour)
    if found is not None:
        return store.check(found)
    lack = cargo.missing()
    if lack is not None:
        raise UnavailableError(lack)
    library = _place(flavour)
    log = library.parent.with_suffix(".log")
    with cargo.building(f"the engine {flavour}", report) as source:
        found = cached(flavour)  # another process may have built it meanwhile
        if found is not None:
            return store.check(found)
        log.unlink(missing_ok=True)
        release, _ = _pinned()
        report(f"{flavour}: fetching {CRATE}")
        _lay_out(flavour, _fetch_crate(log), source)
        report(f"{flavour}: building (some minutes; log in {log})")
        arguments = [*_COMMAND, *_features(flavour)]
        content = cargo.build(arguments, source, _LIBRARY, log, report)
        store.keep(library, content, release)
    return library


def lay_out(flavour: str, folder: Path) -> None:
    """Write the sources of a flavour to an empty folder, as :func:`build` builds them.

    Raises:
        UnknownNameError: there is no such flavour.
        EngineError: the crate cannot be had, or a patch does not apply.
    """
    _sources(flavour)
    _lay_out(flavour, _fetch_crate(_place(flavour).parent.with_suffix(".log")), folder)


def _lay_out(flavour: str, crate: bytes, work: Path) -> None:
    """Write the build's sources: our crate, and llguidance patched beside it."""
    with tarfile.open(fileobj=io.BytesIO(crate)) as archive:
        archive.extractall(work, filter="data")
    (unpacked,) = work.glob(f"{CRATE}-*")
    tree = unpacked.rename(work / CRATE)
    for patch in ("common.patch", *_PATCHES[flavour]):
        apply_patch(_read(patch).decode(), tree)
    for name, place in _MODULES.get(flavour, {}).items():
        module = tree / place
        module.parent.mkdir(exist_ok=True)
        module.write_bytes(_read(name))
    manifest = _read("Cargo.toml").decode()
    manifest += f'\n[patch.crates-io]\n{CRATE} = {{ path = "{CRATE}" }}\n'
    (work / "Cargo.toml").write_text(manifest)
    (work / "src").mkdir()
    (work / "src/lib.rs").write_bytes(_read("src/lib.rs"))
    # A package at a path has neither source nor checksum; all others stay locked as they are.
    entry = re.compile(rf'(name = "{CRATE}"\nversion = .*\n)source = .*\nchecksum = .*\n')
    (work / "Cargo.lock").write_text(entry.sub(r"\1", _read("Cargo.lock").decode()))


def apply_patch(patch: str, tree: Path) -> None:
    """Apply a unified diff exactly: at its line numbers, its context as it stands.

    Neither ``patch`` nor git is needed where Rust is, and a patch to a pinned crate needs no fuzz.

    Raises:
        EngineError: the tree is not the one the patch was made for.
    """
    for section in re.split(r"^--- .*\n", patch, flags=re.MULTILINE)[1:]:
        head, _, hunks = section.partition("\n")
        name = head.removeprefix("+++ ").removeprefix("b/")
        path = tree / name
        try:
            old = path.read_text().splitlines(keepends=True)
        except OSError as error:
            raise EngineError(f"patch: {name}: {error.strerror}") from None
        new: list[str] = []
        done = 0
        for hunk in re.split(r"^@@ ", hunks, flags=re.MULTILINE)[1:]:
            position, *lines = hunk.splitlines(keepends=True)
            match = re.match(r"-(\d+)(?:,(\d+))? ", position)
            if match is None:
                raise EngineError(f"patch: {name}: malformed hunk {position.strip()!r}")
            start = int(match[1]) - (match[2] != "0")
            before = [line[1:] for line in lines if line[0] in " -"]
            after = [line[1:] for line in lines if line[0] in " +"]
            if start < done or old[start : start + len(before)] != before:
                raise EngineError(f"patch: {name}: line {start + 1} is not what the patch expects")
            new += old[done:start] + after
            done = start + len(before)
        path.write_text("".join(new + old[done:]))


def _pinned() -> tuple[str, str]:
    """Return the crate's version and checksum, as engine/Cargo.lock has them."""
    entry = re.search(
        rf'name = "{CRATE}"\nversion = "(.*)"\nsource = .*\nchecksum = "(.*)"',
        _read("Cargo.lock").decode(),
    )
    if entry is None:
        raise EngineError(f"engine/Cargo.lock pins no published {CRATE}")
    return entry[1], entry[2]


def _fetch_crate(log: Path) -> bytes:
    """Return the crate's archive, fetched by cargo, its checksum verified."""
    version, checksum = _pinned()
    home = paths.root() / "engine"
    cargo.run(["fetch", "--locked"], home, log)
    text = cargo.run(["metadata", "--format-version=1", "--locked", "--offline"], home, log)
    packages = json.loads(text)["packages"]
    manifest = next(Path(p["manifest_path"]) for p in packages if p["name"] == CRATE)
    # registry/src/<registry>/<crate>/Cargo.toml was unpacked from registry/cache/<registry>/….
    unpacked = manifest.parent
    registry = unpacked.parent
    archive = registry.parents[1] / "cache" / registry.name / f"{unpacked.name}.crate"
    try:
        data = archive.read_bytes()
    except OSError as error:
        raise EngineError(f"{archive}: {error.strerror} (cargo fetched {unpacked})") from None
    found = hashlib.sha256(data).hexdigest()
    if found != checksum:
        raise EngineError(f"{archive}: sha256 {found}, but {CRATE} {version} is {checksum}")
    return data


def _sources(flavour: str) -> tuple[str, ...]:
    if flavour not in FLAVOURS:
        raise UnknownNameError("engine", flavour, FLAVOURS)
    return (*_COMMON, *_PATCHES[flavour], *_MODULES.get(flavour, {}))


def _features(flavour: str) -> tuple[str, ...]:
    return _FEATURES.get(flavour, ())


def _read(name: str) -> bytes:
    path = paths.root() / "engine" / name
    try:
        return path.read_bytes()
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror}") from None


def _place(flavour: str) -> Path:
    return paths.cache() / "engines" / f"{flavour}-{input_key(flavour)}" / _LIBRARY
