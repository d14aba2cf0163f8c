"""Engines by name: the installed wheel, other releases, library files, our own builds.

A registered engine is one JSON file in the cache; a release is brought by pip and its library
kept there; a library file stays where it is, so that a rebuild is picked up.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llgbench import engine, paths
from llgbench.engine import Engine
from llgbench.errors import EngineError, InputError, UnavailableError, UnknownNameError
from llgbench.variant import Variant

WHEEL = "wheel"
STOCK = "stock"
FALLBACK = "fallback"
BUILT = (STOCK, FALLBACK)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.+!]*")


@dataclass(frozen=True)
class EngineEntry:
    """One known engine.

    Attributes:
        name: as it is asked for.
        spec: where it comes from: ``wheel``, ``pypi:1.7.6``, ``build:stock``, or a file.
        path: the library; None where it is not there yet.
        remedy: the command that would bring it, where it is not there.
    """

    name: str
    spec: str
    path: Path | None
    remedy: str = ""


def entries() -> dict[str, EngineEntry]:
    """Return all known engines by name, the built-in ones first."""
    from llgbench import engine_build

    found = {WHEEL: EngineEntry(WHEEL, WHEEL, wheel_path(), "pip install llguidance")}
    for name in BUILT:
        found[name] = EngineEntry(
            name, f"build:{name}", engine_build.cached(name), f"llgbench engine build {name}"
        )
    for file in sorted(_folder().glob("*.json")):
        spec, path = _registration(file)
        found[file.stem] = EngineEntry(
            file.stem, spec, path if path.is_file() else None,
            f"llgbench engine add {file.stem} {spec}",
        )  # fmt: skip
    return found


def _registration(file: Path) -> tuple[str, Path]:
    try:
        table = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        why = str(error)
    else:
        match table:
            case {"spec": str(spec), "path": str(path)}:
                return spec, Path(path)
        why = "it has no spec or no path"
    raise EngineError(f"{file} is damaged ({why}); remove it and add the engine again")


def get(name: str) -> Engine:
    """Load an engine; see :func:`locate`.

    Raises:
        UnknownNameError: nothing has that name.
        UnavailableError: it is known and not there; the message has the command that brings it.
        EngineError: its library cannot serve.
    """
    return engine.load(locate(name))


def locate(name: str) -> Path:
    """Return the library of an engine by name, by ``pypi:VERSION``, or by its path; load nothing.

    Raises:
        UnknownNameError: nothing has that name.
        UnavailableError: it is known and not there; the message has the command that brings it.
        EngineError: the release cannot be fetched.
    """
    known = entries()
    entry = known.get(name)
    if entry is None:
        if name.startswith("pypi:"):
            return fetch_release(name.removeprefix("pypi:"))
        if "/" in name or name.endswith(".so"):
            return Path(name)
        raise UnknownNameError("engine", name, known)
    if entry.path is None:
        raise UnavailableError(f"engine {name} is not here; run: {entry.remedy}")
    return entry.path


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
    from llgbench import engine_build

    missing = engine_build.missing()
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
    if spec.startswith("pypi:"):
        report(f"fetching llguidance {spec.removeprefix('pypi:')}")
        path = fetch_release(spec.removeprefix("pypi:"))
    else:
        path = Path(spec).resolve()
    engine.load(path)
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{name}.part"
        part.write_text(json.dumps({"spec": spec, "path": str(path)}))
        part.replace(folder / f"{name}.json")
    except OSError as error:
        raise _unwritable(folder, error) from None
    return EngineEntry(name, spec, path)


def wheel_path() -> Path | None:
    """Return the library of the installed llguidance package, without importing it."""
    spec = importlib.util.find_spec("llguidance")
    if spec is None or not spec.submodule_search_locations:
        return None
    return _library_in(Path(spec.submodule_search_locations[0]))


def fetch_release(version: str) -> Path:
    """Bring a published release's library into the cache by pip; reuse it where it is there.

    Raises:
        EngineError: pip has no such release for this machine.
        InputError: the version is none, or the cache cannot be written.
    """
    if not _VERSION.fullmatch(version):
        raise InputError(f"pypi:{version} names no release; a version is like 1.7.6")
    target = paths.cache() / "releases" / version
    found = _library_in(target)
    if found is not None:
        return found
    with tempfile.TemporaryDirectory(prefix="llgbench-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", "llguidance", "--dest", folder, f"llguidance=={version}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            why = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
            raise EngineError(
                f"no wheel of llguidance {version} for this machine: "
                f"{(why or ['pip brought none'])[-1].removeprefix('ERROR: ')}"
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            members = [m for m in wheel.namelist() if re.fullmatch(r"llguidance/_lib.*\.so", m)]
            if not members:
                raise EngineError(f"the wheel of llguidance {version} holds no library")
            path = target / Path(members[0]).name
            part = path.with_suffix(".part")
            try:
                target.mkdir(parents=True, exist_ok=True)
                with wheel.open(members[0]) as source, part.open("wb") as into:
                    shutil.copyfileobj(source, into)
                part.replace(path)
            except OSError as error:
                raise _unwritable(target, error) from None
    return path


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot write {folder}: {error.strerror}; {paths.CACHE_VARIABLE} names another cache"
    )


def _library_in(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob("_lib*.so"))), None)


def _folder() -> Path:
    return paths.cache() / "engines"
