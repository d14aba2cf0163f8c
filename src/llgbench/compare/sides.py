"""The two sides of a comparison: what BASE and HEAD on the command line stand for.

``ENGINE`` or ``ENGINE+fallback=on``, where ENGINE is an engine's name, ``pypi:VERSION``, the path
of a library, or ``git:PATH@REV``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from llgbench import files
from llgbench.engines import git_build, registry
from llgbench.engines.facts import facts
from llgbench.errors import EngineError, InputError, UnavailableError

SIDES = ("base", "head")

# Debug information makes a library large: those of this size are none.
_LARGEST = 4 << 30

# A path may contain the same words.
_SUFFIX = re.compile(r"\+fallback=([^/@+]*)$")


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

    def is_same_as(self, other: Side) -> bool:
        """Whether nothing could differ: the same library, under the same option."""
        return (self.sha256, self.fallback) == (other.sha256, other.fallback)

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
    name, value = spec, ""
    suffix = _SUFFIX.search(spec)
    if suffix is not None and not os.path.isfile(spec):
        name, value = spec[: suffix.start()], suffix[1]
        if value not in ("on", "off"):
            raise InputError(f"{spec!r}: fallback is on or off")
    commit = None
    if name.startswith(git_build.PREFIX):
        revision = git_build.parse(name)
        commit = revision.commit
        library = git_build.build(revision, report)
    else:
        library = registry.locate(name, report)
    about = facts(library)
    option = None
    if value == "on":
        option = about.fallback_option
        if option is None:
            raise UnavailableError(
                f"{name} has no greedy lexeme fallback to switch on (it rejects `listed` under "
                "every option)"
            )
    return Side(spec, library.resolve(), option, about.release, about.sha256, commit)


def caution(base: Side, head: Side) -> str | None:
    """Return what a reader of the table must know of how the two were built; None where nothing.

    A published wheel and a build of this machine differ by compiler and profile too, also where
    their sources are the same.
    """
    published = [_is_published(side.spec) for side in (base, head)]
    if None in published or published[0] == published[1]:
        return None
    return (
        "one side is a published wheel and the other was built here: compiler and profile differ "
        "as well, and a ratio is not of the sources alone"
    )


def _is_published(spec: str) -> bool | None:
    """Whether a side is a published wheel; None where nothing says how it was built."""
    name = _SUFFIX.sub("", spec)
    if name == registry.WHEEL or name.startswith(registry.PYPI):
        return True
    return False if name in registry.BUILT or name.startswith(git_build.PREFIX) else None


def twin(side: Side) -> Side:
    """Return the other side of a comparison without a difference."""
    return replace(side, spec=f"{side.spec} (copy)")


def private(side: Side, folder: Path, name: str) -> Side:
    """Return a side whose library is a copy of its own, in a comparison's temporary folder.

    The same file would be loaded once for both sides; and a file that other processes use as well
    is a little slower or faster than one that is not, so both sides are copies. A library that is
    rebuilt meanwhile does not change what is compared.

    Raises:
        EngineError: the library changed since it was resolved, or cannot be copied.
    """
    copy = folder / f"{name}.so"
    files.write(copy, files.read(side.library, limit=_LARGEST, error=EngineError))
    if files.sha256(copy) != side.sha256:
        raise EngineError(f"{side.library} changed while it was read; run the command again")
    return replace(side, library=copy)


def copy_of(library: Path, folder: Path) -> Path:
    """Copy a library into a folder, so that it can be loaded beside itself; return the copy."""
    copy = folder / f"copy-{library.name}"
    shutil.copyfile(library, copy)
    return copy
