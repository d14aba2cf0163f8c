"""Engines other than llguidance: how each is named, and how its libraries are brought and kept.

None is a dependency. xgrammar is two libraries out of published wheels, of which nothing is run or
installed; glrmask and outlines-core are crates, each built with a shim of ours (engine/peers/)
that exports the functions of the adapter; llama.cpp's grammars are in the library that is here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Literal, get_args

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from llgbench import files, package_index, paths, processes
from llgbench.engines import cargo, store, wheels
from llgbench.errors import EngineError, InputError, UnavailableError

Kind = Literal["xgrammar", "gbnf", "glrmask", "outlines"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_BINDINGS = "libxgrammar_bindings.so"
_TVM_FFI = "libtvm_ffi.so"
_TVM_PACKAGE = "apache-tvm-ffi"
# TVM FFI says of its C ABI that it is kept within a minor release.
_TVM_BELOW = Version("0.2")

_CRATES: dict[Kind, str] = {"glrmask": "glrmask", "outlines": "outlines-core"}
_SHIM = "libllgbench_peer.so"


@dataclass(frozen=True, order=True)
class PeerSpec:
    """Which engine, of which release, in which mode.

    Attributes:
        kind: the engine.
        version: its release; empty for ``gbnf``, which is that of the installed llama.cpp.
        lazy: xgrammar makes its masks while it decodes (``enable_dynamic_compilation``).
    """

    kind: Kind
    version: str = ""
    lazy: bool = False

    def __str__(self) -> str:
        release = f":{self.version}" if self.version else ""
        return f"{self.kind}{release}{'+lazy' if self.lazy else ''}"


def parse(text: str) -> PeerSpec | None:
    """Return the engine that a specification names; None where it is one of llguidance.

    Raises:
        InputError: it begins as one of these and is not one.
    """
    match = re.fullmatch(r"([a-z]+)(?::([^+]*))?((?:\+.*)?)", text)
    if match is None or match[1] not in KINDS:
        return None
    kind: Kind = match[1]
    version, mode = match[2], match[3]
    if mode not in ("", "+lazy") or (mode and kind != "xgrammar"):
        known = "; +lazy is xgrammar's alone" if mode == "+lazy" else ""
        raise InputError(f"{text}: {kind} has no mode {mode.removeprefix('+')!r}{known}")
    if kind == "gbnf":
        if version is not None:
            raise InputError(f"{text}: gbnf has no version; it is the installed llama.cpp's")
        return PeerSpec(kind)
    if not version:
        raise InputError(f"{text} names no release; write {kind}:VERSION")
    try:
        release = str(Version(version))
    except InvalidVersion:
        raise InputError(f"{text} names no release; a version is like 0.2.9") from None
    return PeerSpec(kind, release, bool(mode))


@dataclass(frozen=True)
class Libraries:
    """What an engine is loaded from.

    Attributes:
        paths: the shared libraries, in the order they are loaded.
        release: of what, in words.
    """

    paths: tuple[Path, ...]
    release: str


def locate(spec: PeerSpec) -> Libraries:
    """Return an engine's libraries, once their content is what was kept; load nothing.

    Raises:
        UnavailableError: they are not here; the message has the command that brings them.
        EngineError: one was altered in the cache.
    """
    if spec.kind == "gbnf":
        return Libraries((), "llama.cpp")
    found = [_folder(spec) / name for name in _names(spec.kind)]
    if not all(store.is_kept(path) for path in found):
        bare = PeerSpec(spec.kind, spec.version)
        raise UnavailableError(f"{bare} is not here; run: llgbench engine add {bare}")
    release = store.release_of(found[-1]) or spec.version
    return Libraries(tuple(store.check(path) for path in found), release)


def bring(spec: PeerSpec, report: Callable[[str], None]) -> Libraries:
    """Bring an engine into the cache, unless it is there.

    Args:
        spec: which.
        report: called with a line for each stage that takes time.

    Raises:
        UnavailableError: no package index is known, or Rust is missing.
        PackageIndexError: the index cannot be read.
        EngineError: there is no such release for this machine, or it does not build.
        InputError: the cache cannot be written.
    """
    try:
        return locate(spec)
    except UnavailableError:
        pass
    folder = _folder(spec)
    lock = folder.parent / f"lock-{spec.kind}"  # a build takes minutes, a wheel seconds
    with (
        store.writing(folder.parent),
        files.locked(lock, f"brings {spec.kind} {spec.version}", report, error=InputError),
    ):
        if spec.kind == "xgrammar":
            _fetch_xgrammar(spec, folder, report)
        else:
            _build(spec, folder, report)
    return locate(spec)


def kept() -> Iterator[PeerSpec]:
    """Yield the engines that are here, ``gbnf`` first."""
    yield PeerSpec("gbnf")
    for folder in sorted((paths.cache() / "peers").glob("*-*")):
        kind, version = folder.name.split("-")[:2]
        if kind in KINDS:
            spec = PeerSpec(kind, version)
            if folder == _folder(spec) and all(
                store.is_kept(folder / name) for name in _names(kind)
            ):
                yield spec


def _names(kind: Kind) -> tuple[str, ...]:
    return (_TVM_FFI, _BINDINGS) if kind == "xgrammar" else (_SHIM,)


def _folder(spec: PeerSpec) -> Path:
    """Return where an engine is kept: a shim by its sources too, xgrammar as it was published."""
    name = f"{spec.kind}-{spec.version}"
    if spec.kind in _CRATES:
        name += f"-{hashlib.sha256(b''.join(_sources(spec.kind).values())).hexdigest()[:12]}"
    return paths.cache() / "peers" / name


def _sources(kind: Kind) -> dict[str, bytes]:
    """Return the files that a shim is built of, by name."""
    home = paths.root() / "engine" / "peers"
    found = (home / kind / "Cargo.toml", home / kind / "src" / "lib.rs", home / "peer.rs")
    return {path.name: files.read(path, error=EngineError) for path in found}


# ---- xgrammar ----


def _fetch_xgrammar(spec: PeerSpec, folder: Path, report: Callable[[str], None]) -> None:
    """Take the two libraries out of their wheels; see wheels.py for what is verified."""
    wheel = wheels.best(package_index.links("xgrammar"), "xgrammar", Version(spec.version))
    with processes.temporary_folder() as work:
        report(f"fetching {wheel.name}")
        archive = package_index.bring(wheel, work)
        _, bindings = wheels.member(archive, rf"xgrammar/{re.escape(_BINDINGS)}")
        _, metadata = wheels.member(archive, r"xgrammar-[^/]+\.dist-info/METADATA")
        base = _tvm_ffi(metadata.decode(errors="replace"))
        report(f"fetching {base.name}")
        _, tvm_ffi = wheels.member(
            package_index.bring(base, work), rf"tvm_ffi/lib/{re.escape(_TVM_FFI)}"
        )
    release = f"xgrammar {spec.version} on {_TVM_PACKAGE} {base.name.split('-')[1]}"
    store.keep(folder / _TVM_FFI, tvm_ffi, release)
    store.keep(folder / _BINDINGS, bindings, release)


def _tvm_ffi(metadata: str) -> package_index.Link:
    """Return the newest wheel of TVM FFI that a release of xgrammar asks for."""
    wanted = None
    for line in HeaderParser().parsestr(metadata).get_all("Requires-Dist") or ():
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.name == _TVM_PACKAGE:
            wanted = requirement.specifier
    if wanted is None:
        raise EngineError(f"this release of xgrammar is not on {_TVM_PACKAGE}; 0.2.x is")
    return wheels.best(
        package_index.links(_TVM_PACKAGE), _TVM_PACKAGE,
        lambda version: version in wanted and version < _TVM_BELOW and not version.is_prerelease,
    )  # fmt: skip


# ---- crates ----


def _build(spec: PeerSpec, folder: Path, report: Callable[[str], None]) -> None:
    """Build a shim with its crate by cargo."""
    lack = cargo.missing()
    if lack is not None:
        raise UnavailableError(lack)
    crate = _CRATES[spec.kind]
    sources = _sources(spec.kind)
    lock = paths.root() / "engine" / "peers" / spec.kind / "Cargo.lock"
    locked = files.read_text(lock, error=EngineError)
    log = folder.with_name(f"{folder.name}.log")
    with cargo.building(f"{crate} {spec.version}", report) as source:
        log.unlink(missing_ok=True)
        (source / "src").mkdir()
        manifest = sources.pop("Cargo.toml").decode()
        (source / "Cargo.toml").write_text(manifest.replace("@VERSION@", spec.version))
        for name, content in sources.items():
            (source / "src" / name).write_bytes(content)
        command = ["build", "--release"]
        # The lock file is of one release; another resolves its dependencies anew.
        if f'name = "{crate}"\nversion = "{spec.version}"\n' in locked:
            (source / "Cargo.lock").write_text(locked)
            command.append("--locked")
        report(f"{crate} {spec.version}: building (some minutes; log in {log})")
        library = cargo.build(command, source, _SHIM, log, report)
    store.keep(folder / _SHIM, library, f"{crate} {spec.version}")
