"""Building the suite's own engines: llguidance with and without the greedy lexeme fallback.

Both flavours are the published crate, pinned by the checksum in engine/Cargo.lock, and are built
from the same profile; see engine/README.md. What is built is kept under the cache by a key of all
that went in, so building again is a look-up.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from llgbench import paths
from llgbench.errors import EngineError, UnavailableError, UnknownNameError

FLAVOURS = ("stock", "fallback")

_CRATE = "llguidance"
# Engine sources by flavour: what stands in engine/, and where fallback.rs goes in the crate.
_COMMON = ("Cargo.toml", "Cargo.lock", "src/lib.rs", "common.patch")
_FALLBACK = ("fallback.patch", "fallback.rs")
_MODULE = "src/earley/parser/fallback.rs"
_LIBRARIES = ("libllgbench_engine.so", "libllgbench_engine.dylib", "llgbench_engine.dll")
# A user's own compiler flags would make two machines' engines differ under one key.
_DROPPED_VARIABLES = re.compile(r"(CARGO_(ENCODED_|BUILD_)?|^)RUSTFLAGS$|^CARGO_PROFILE_")
_LOG_TAIL = 12
# How an engine is built, beside the files; these are part of the key. A change of `_lay_out` that
# changes what is built takes a new number.
_LAYOUT = 1
_COMMAND = ("build", "--release", "--locked", "--offline")
_FEATURES = {"stock": (), "fallback": ("--features", "fallback")}


def missing() -> str | None:
    """Return one line that says what is missing to build engines here; None where nothing is."""
    absent = [tool for tool in ("cargo", "rustc") if shutil.which(tool) is None]
    if absent:
        return f"no {' and no '.join(absent)} on PATH: install Rust (stable) to build engines"
    try:
        _rustc_version()
    except UnavailableError as error:
        return str(error)
    return None


def input_key(flavour: str) -> str:
    """Return the key of a flavour: a hash of all that goes into building it.

    Raises:
        UnknownNameError: there is no such flavour.
        UnavailableError: Rust is missing, so its version cannot go into the key.
        EngineError: a file of engine/ is missing.
    """
    h = hashlib.sha256()
    for name in _sources(flavour):
        h.update(name.encode() + b"\0" + _read(name) + b"\0")
    h.update(f"{_LAYOUT} {_COMMAND} {_FEATURES[flavour]}".encode())
    h.update(_rustc_version().encode())
    return h.hexdigest()[:16]


def cached(flavour: str) -> Path | None:
    """Return the library of a flavour if it was built from these inputs before, else None.

    Raises:
        UnknownNameError: there is no such flavour.
        EngineError: a file of engine/ is missing.
    """
    try:
        folder = _folder(flavour)
    except UnavailableError:
        return None
    return _library(folder)


def build(flavour: str, *, report: Callable[[str], None] | None = None) -> Path:
    """Build a flavour, unless that was done before, and return its library.

    Args:
        flavour: one of FLAVOURS.
        report: called with a line for each stage that takes time.

    Raises:
        UnknownNameError: there is no such flavour.
        UnavailableError: what is needed to build is missing.
        EngineError: the crate cannot be had, its checksum is wrong, a patch does not apply, or
            cargo fails; the message has cargo's last lines and the path of the log.
    """
    say = report or (lambda line: None)
    found = cached(flavour)
    if found is not None:
        return found
    lack = missing()
    if lack is not None:
        raise UnavailableError(lack)
    engines = paths.cache() / "engines"
    with _locked(engines / "lock"):
        found = cached(flavour)  # another process may have built it meanwhile
        return found or _build(flavour, _folder(flavour), engines, say)


def _build(flavour: str, folder: Path, engines: Path, say: Callable[[str], None]) -> Path:
    log = engines / f"{folder.name}.log"
    log.unlink(missing_ok=True)
    say(f"{flavour}: fetching {_CRATE}")
    crate = _fetch_crate(log)
    # The place of the sources goes into the library, so it is the same for every build.
    work = engines / f"build-{flavour}"
    shutil.rmtree(work, ignore_errors=True)
    (work / "src").mkdir(parents=True)
    _lay_out(flavour, crate, work)
    say(f"{flavour}: building (some minutes; log in {log})")
    command = [*_COMMAND, *_FEATURES[flavour]]
    _cargo(command, work, log, {"CARGO_TARGET_DIR": str(engines / "target")})
    built = _library(engines / "target" / "release")
    if built is None:
        raise EngineError(f"cargo built no library (log: {log})")
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=engines))
    beside.chmod(0o755)
    shutil.copy2(built, beside / built.name)
    if folder.exists():
        shutil.rmtree(folder)
    beside.rename(folder)
    shutil.rmtree(work)
    return folder / built.name


def _lay_out(flavour: str, crate: bytes, work: Path) -> None:
    """Write the build's sources: our crate, and llguidance patched beside it."""
    with tarfile.open(fileobj=io.BytesIO(crate)) as archive:
        archive.extractall(work, filter="data")
    (unpacked,) = work.glob(f"{_CRATE}-*")
    tree = unpacked.rename(work / _CRATE)
    apply_patch(_read("common.patch").decode(), tree)
    if flavour == "fallback":
        apply_patch(_read("fallback.patch").decode(), tree)
        module = tree / _MODULE
        module.parent.mkdir()
        module.write_bytes(_read("fallback.rs"))
    manifest = _read("Cargo.toml").decode()
    manifest += f'\n[patch.crates-io]\n{_CRATE} = {{ path = "{_CRATE}" }}\n'
    (work / "Cargo.toml").write_text(manifest)
    (work / "src/lib.rs").write_bytes(_read("src/lib.rs"))
    # A package at a path has neither source nor checksum; all others stay locked as they are.
    entry = re.compile(rf'(name = "{_CRATE}"\nversion = .*\n)source = .*\nchecksum = .*\n')
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


def _fetch_crate(log: Path) -> bytes:
    """Return the crate's archive, fetched by cargo, its checksum verified."""
    locked = _read("Cargo.lock").decode()
    entry = re.search(
        rf'name = "{_CRATE}"\nversion = "(.*)"\nsource = .*\nchecksum = "(.*)"', locked
    )
    if entry is None:
        raise EngineError(f"engine/Cargo.lock pins no published {_CRATE}")
    version, checksum = entry.groups()
    home = paths.root() / "engine"
    _cargo(["fetch", "--locked"], home, log, {})
    text = _cargo(["metadata", "--format-version=1", "--locked", "--offline"], home, log, {})
    packages = json.loads(text)["packages"]
    manifest = next(Path(p["manifest_path"]) for p in packages if p["name"] == _CRATE)
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
        raise EngineError(f"{archive}: sha256 {found}, but {_CRATE} {version} is {checksum}")
    return data


def _cargo(arguments: list[str], cwd: Path, log: Path, extra: dict[str, str]) -> str:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        print("$ cargo", *arguments, file=file, flush=True)
        done = subprocess.run(
            ["cargo", *arguments],
            cwd=cwd,
            env=_environment() | extra,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_TAIL:])
        raise EngineError(f"cargo {arguments[0]} failed (log: {log}):\n{tail}")
    return done.stdout


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not _DROPPED_VARIABLES.search(k)}
    # A crate's own rust-toolchain.toml may ask for a toolchain that is not installed.
    return {"RUSTUP_TOOLCHAIN": "stable", **kept}


@lru_cache(maxsize=1)
def _rustc_version() -> str:
    try:
        done = subprocess.run(
            ["rustc", "-vV"], env=_environment(), capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise UnavailableError(f"rustc: {error.strerror}") from None
    if done.returncode != 0:
        raise UnavailableError(f"rustc does not run: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def _sources(flavour: str) -> tuple[str, ...]:
    if flavour not in FLAVOURS:
        raise UnknownNameError("engine", flavour, FLAVOURS)
    return _COMMON + (_FALLBACK if flavour == "fallback" else ())


def _read(name: str) -> bytes:
    path = paths.root() / "engine" / name
    try:
        return path.read_bytes()
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror}") from None


def _folder(flavour: str) -> Path:
    return paths.cache() / "engines" / f"{flavour}-{input_key(flavour)}"


def _library(folder: Path) -> Path | None:
    return next((folder / name for name in _LIBRARIES if (folder / name).is_file()), None)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process build at a time: both flavours share a target folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
