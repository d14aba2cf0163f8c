"""The two sides of a comparison: what BASE and HEAD on the command line stand for.

``ENGINE`` or ``ENGINE+fallback=on``, where ENGINE is an engine's name, ``pypi:VERSION``, the path
of a library, or ``git:PATH@REV``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llgbench import git_build, registry
from llgbench.engine import Engine, load
from llgbench.errors import InputError, UnavailableError

SIDES = ("base", "head")

_SUFFIX = "+fallback="


@dataclass(frozen=True)
class Side:
    """One side.

    Attributes:
        spec: as given.
        library: the engine's file.
        fallback: the grammar option that is switched on; None where none is.
        release: llguidance's release.
        sha256: of the library, in hex.
        commit: of the llguidance checkout; None where the engine is not built from one.
    """

    spec: str
    library: Path
    fallback: str | None
    release: str
    sha256: str
    commit: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Grammar options of this side."""
        return {self.fallback: True} if self.fallback else {}

    def __str__(self) -> str:
        commit = f", {self.commit[:10]}" if self.commit else ""
        return f"{self.spec} (llguidance {self.release}{commit}, {self.sha256[:12]})"

    def to_json(self) -> dict[str, Any]:
        """Return the side as plain data."""
        return {**asdict(self), "library": str(self.library)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Side:
        """Read back what :meth:`to_json` wrote."""
        return cls(**{**data, "library": Path(data["library"])})


def resolve(spec: str, report: Callable[[str], None]) -> Side:
    """Bring the engine of a side, and prove the option it asks for.

    Raises:
        UnknownNameError, UnavailableError, EngineError, InputError: it cannot be had.
    """
    name, found, value = spec.partition(_SUFFIX)
    if found and value not in ("on", "off"):
        raise InputError(f"{spec!r}: fallback is on or off")
    commit = None
    if name.startswith(git_build.PREFIX):
        revision = git_build.parse(name)
        commit = revision.commit
        engine = load(git_build.build(revision, report))
    else:
        engine = registry.get(name)
    option = None
    if value == "on":
        option = engine.fallback_option
        if option is None:
            raise UnavailableError(
                f"{name} has no greedy lexeme fallback to switch on (it rejects `listed` under "
                "every option)"
            )
    return _side(spec, engine, option, commit)


def twin(side: Side, folder: Path) -> Side:
    """Return a second copy of a side, for a comparison without a difference.

    The same file would be loaded once; a copy gets its own place in memory, as another engine
    would.
    """
    copy = load(copy_of(side.library, folder))
    return _side(f"{side.spec} (copy)", copy, side.fallback, side.commit)


def copy_of(library: Path, folder: Path) -> Path:
    """Copy a library into a folder, so that it can be loaded beside itself; return the copy."""
    copy = folder / f"copy-{library.name}"
    shutil.copyfile(library, copy)
    return copy


def _side(spec: str, engine: Engine, option: str | None, commit: str | None) -> Side:
    return Side(spec, engine.path, option, engine.release, engine.sha256, commit)
