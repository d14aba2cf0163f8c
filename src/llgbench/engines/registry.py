"""Engines by name: the installed wheel, other releases, library files, our own builds.

A registered engine is one JSON file in the cache. What is fetched or built is kept there too, with
its sha256; a library file of the user's stays where it is, so that a rebuild is picked up.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llgbench import files, output, paths
from llgbench.engines import build as engine_build
from llgbench.engines import cargo, engine, git_build, store, wheels
from llgbench.engines import spec as specs
from llgbench.engines.engine import Engine
from llgbench.engines.facts import facts
from llgbench.engines.spec import BUILT, GIT, PYPI
from llgbench.engines.spec import FALLBACK as FALLBACK
from llgbench.engines.spec import STOCK as STOCK
from llgbench.engines.spec import WHEEL as WHEEL
from llgbench.errors import (
    EngineError,
    FileError,
    InputError,
    UnavailableError,
    UnknownNameError,
)
from llgbench.inputs.variant import Variant

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_BUILD = "build:"


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
            name, f"{_BUILD}{name}", engine_build.cached(name), f"llgbench engine build {name}"
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
    remedy = f"llgbench engine add {name} {files.one_line(registration.spec)}"
    path = Path(registration.path)
    there = store.is_kept(path) if _in_cache(registration.spec) else os.path.isfile(path)
    return EngineEntry(name, registration.spec, path if there else None, remedy)


def get(name: str, report: Callable[[str], None] = output.say) -> Engine:
    """Load an engine; see :func:`locate`.

    Raises:
        UnknownNameError: nothing has that name.
        UnavailableError: it is known and not there; the message has the command that brings it.
        EngineError: its library cannot serve.
    """
    return engine.load(locate(name, report))


def locate(name: str, report: Callable[[str], None] = output.say) -> Path:
    """Return the library of an engine; load nothing.

    What the cache keeps is checked by its sha256. The installed wheel and a user's own library
    may change.

    Args:
        name: an engine's name, ``pypi:VERSION``, ``git:PATH@REV``, or the path of a library.
        report: called with a line where something is fetched or built.

    Raises:
        UnknownNameError: nothing has that name.
        UnavailableError: it is known and not there; the message has the command that brings it.
        InputError: the release or revision is not one, or the cache cannot be written.
        EngineError: it cannot be fetched or built, or was altered in the cache.
    """
    known = entries()
    entry = known.get(name)
    if entry is None:
        if specs.parse(name).fallback is not None:
            raise InputError(
                f"{name!r}: +fallback is for the two sides of compare and pr; elsewhere the "
                "variant decides, so give --variant greedy_lexeme_fallback"
            )
        if _in_cache(name):
            return _bring(name, report)
        if "/" in name or name.endswith(".so") or os.path.isfile(name):
            return Path(name)
        raise UnknownNameError("engine", name, known)
    if entry.fault:
        raise EngineError(entry.fault)
    if entry.path is None:
        raise UnavailableError(f"engine {name} is not here; run: {entry.remedy}")
    return store.check(entry.path) if _in_cache(entry.spec) else entry.path


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
        spec: ``pypi:VERSION``, ``git:PATH@REV``, or the path of a library.
        report: called with one line where something is fetched.

    Raises:
        InputError: the name cannot be used, or the cache cannot be written.
        EngineError: the library cannot serve, or the release cannot be fetched.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"an engine's name is made of letters, digits and ._+-, not {name!r}")
    if name in (WHEEL, *BUILT):
        raise InputError(f"{name} is a built-in engine; choose another name")
    path = _bring(spec, report) if _in_cache(spec) else Path(os.path.realpath(spec))
    facts(path)
    with store.writing(_folder()):
        files.write(_folder() / f"{name}.json", json.dumps({"spec": spec, "path": str(path)}))
    return EngineEntry(name, spec, path)


def _in_cache(spec: str) -> bool:
    """Whether an engine of this specification is kept in the cache, with its sha256."""
    return spec.startswith((PYPI, GIT, _BUILD))


def _bring(spec: str, report: Callable[[str], None]) -> Path:
    if spec.startswith(GIT):
        return git_build.build(git_build.parse(spec), report)
    if spec.startswith(PYPI):
        return wheels.fetch_release(spec.removeprefix(PYPI), report)
    return engine_build.build(spec.removeprefix(_BUILD), report=report)


def wheel_path() -> Path | None:
    """Return the library of the installed llguidance package, without importing it."""
    spec = importlib.util.find_spec("llguidance")
    if spec is None or not spec.submodule_search_locations:
        return None
    return wheels.library_in(Path(spec.submodule_search_locations[0]))


def _folder() -> Path:
    return paths.cache() / "engines"
