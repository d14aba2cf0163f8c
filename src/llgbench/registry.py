"""Engines by name: the installed wheel, other releases, library files, our own builds.

A registered engine is one JSON file in the cache; a release is brought by pip and its library
kept there; a library file stays where it is, so that a rebuild is picked up.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llgbench import engine, engine_build, files, paths
from llgbench.engine import Engine
from llgbench.engines import cargo, store, wheels
from llgbench.errors import (
    EngineError,
    FileError,
    InputError,
    UnavailableError,
    UnknownNameError,
)
from llgbench.variant import Variant

WHEEL = "wheel"
STOCK = "stock"
FALLBACK = "fallback"
BUILT = (STOCK, FALLBACK)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
PYPI = "pypi:"


@dataclass(frozen=True)
class EngineEntry:
    """One known engine.

    Attributes:
        name: as it is asked for.
        spec: where it comes from: ``wheel``, ``pypi:1.7.6``, ``build:stock``, or a file.
        path: the library; None where it is not there yet.
        remedy: the command that would bring it, where it is not there.
        fault: what is wrong with its registration; empty where nothing is.
    """

    name: str
    spec: str
    path: Path | None
    remedy: str = ""
    fault: str = ""


@dataclass(frozen=True)
class _Registration:
    """What a registered engine's file holds: the specification as given, and the library."""

    spec: str
    path: str


def entries() -> dict[str, EngineEntry]:
    """Return all known engines by name, the built-in ones first."""
    found = {WHEEL: EngineEntry(WHEEL, WHEEL, wheel_path(), "pip install llguidance")}
    for name in BUILT:
        found[name] = EngineEntry(
            name, f"build:{name}", engine_build.cached(name), f"llgbench engine build {name}"
        )
    for file in sorted(_folder().glob("*.json")):
        if _NAME.fullmatch(file.stem) and file.stem not in found:
            found[file.stem] = _registered(file)
    return found


def _registered(file: Path) -> EngineEntry:
    """Return what a registration says; a damaged one is the fault of that engine alone."""
    name = file.stem
    try:
        registration = files.read_loose_json(file, _Registration)
    except FileError as error:
        fault = f"engine {name} has a damaged registration ({error}); remove it and add it again"
        return EngineEntry(name, "damaged", None, f"rm {file}", fault)
    remedy = f"llgbench engine add {name} {registration.spec}"
    path = Path(registration.path)
    there = os.path.isfile(path) and (not _is_release(registration.spec) or store.is_kept(path))
    return EngineEntry(name, registration.spec, path if there else None, remedy)


def _is_release(spec: str) -> bool:
    return spec.startswith(PYPI)


def get(name: str, report: Callable[[str], None] = lambda _: None) -> Engine:
    """Load an engine by name, by ``pypi:VERSION``, or by the path of a library.

    ``report`` is called with one line where something is fetched.

    Raises:
        UnknownNameError: nothing has that name.
        UnavailableError: it is known and not there; the message has the command that brings it.
        EngineError: its library cannot serve.
    """
    known = entries()
    entry = known.get(name)
    if entry is None:
        if _is_release(name):
            return engine.load(wheels.fetch_release(name.removeprefix(PYPI), report))
        if "/" in name or name.endswith(".so") or os.path.isfile(name):
            return engine.load(name)
        raise UnknownNameError("engine", name, known)
    if entry.fault:
        raise EngineError(entry.fault)
    if entry.path is None:
        raise UnavailableError(f"engine {name} is not here; run: {entry.remedy}")
    # The installed wheel and a user's own library may change; what the cache keeps may not.
    kept = name in BUILT or _is_release(entry.spec)
    return engine.load(store.check(entry.path) if kept else entry.path)


def default_for(variant: Variant) -> str:
    """Return the engine a variant runs on by itself.

    The fallback variant runs on our build of it. The others run on the build of the same sources
    and flags without it, so that a ratio compares lexers and not compilers; where it is not
    built, on the installed wheel.
    """
    if variant.fallback:
        return FALLBACK
    return STOCK if entries()[STOCK].path is not None else WHEEL


def why_no_fallback() -> str:
    """Return why no engine with the fallback is here, and the command that would build it."""
    missing = cargo.missing()
    first = f"{missing}, then " if missing else ""
    return f"no engine with the greedy lexeme fallback; {first}run: llgbench engine build fallback"


def add(name: str, spec: str, report: Callable[[str], None]) -> EngineEntry:
    """Register an engine under a name, once it has loaded.

    Args:
        name: letters, digits and ``._+-``; not one of the built-in names.
        spec: ``pypi:VERSION`` or the path of a library.
        report: called with one line where something is fetched.

    Raises:
        InputError: the name cannot be used, or the cache cannot be written.
        EngineError: the library cannot serve, or the release cannot be fetched.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"an engine's name is made of letters, digits and ._+-, not {name!r}")
    if name in (WHEEL, *BUILT):
        raise InputError(f"{name} is a built-in engine; choose another name")
    if _is_release(spec):
        path = wheels.fetch_release(spec.removeprefix(PYPI), report)
    else:
        path = Path(spec).resolve()
    engine.load(path)
    with store.writing(_folder()):
        files.write(_folder() / f"{name}.json", json.dumps({"spec": spec, "path": str(path)}))
    return EngineEntry(name, spec, path)


def wheel_path() -> Path | None:
    """Return the library of the installed llguidance package, without importing it."""
    spec = importlib.util.find_spec("llguidance")
    if spec is None or not spec.submodule_search_locations:
        return None
    return wheels.library_in(Path(spec.submodule_search_locations[0]))


def _folder() -> Path:
    return paths.cache() / "engines"
