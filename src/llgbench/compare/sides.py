"""From BASE and HEAD on the command line to two libraries that can be compared."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from llgbench import files
from llgbench.compare.side import Side
from llgbench.engines import git_build, registry, spec, symbols
from llgbench.engines.facts import facts
from llgbench.errors import EngineError, UnavailableError

# Behind the name of a copy of the other side.
COPY = " (copy)"

# Debug information makes a library large: those of this size are none.
_LARGEST = 4 << 30


def resolve(text: str, report: Callable[[str], None]) -> Side:
    """Bring the engine of a side, and prove the option it asks for.

    Raises:
        UnknownNameError, UnavailableError, EngineError, InputError: it cannot be had.
    """
    given = spec.parse(text)
    commit = None
    if given.name.startswith(spec.GIT):
        revision = git_build.parse(given.name)
        commit = revision.commit
        library = git_build.build(revision, report)
    else:
        library = registry.locate(given.name, report)
    about = facts(library)
    option = about.fallback_option if given.fallback else None
    if given.fallback and option is None:
        raise UnavailableError(
            f"{given.name} has no greedy lexeme fallback to switch on (it rejects `listed` under "
            "every option)"
        )
    return Side(text, library.resolve(), option, about.release, about.sha256, commit)


def twin(side: Side) -> Side:
    """Return the other side of a comparison without a difference."""
    return replace(side, spec=f"{side.spec}{COPY}")


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


def countable(side: Side) -> Side:
    """Return a private side without its line tables, which valgrind takes half a minute to read.

    The names of functions stay, and so does every byte that is loaded.
    """
    symbols.drop_lines(side.library)
    return side


def copy_of(library: Path, folder: Path) -> Path:
    """Copy a library into a folder, so that it can be loaded beside itself; return the copy."""
    copy = folder / f"copy-{library.name}"
    shutil.copyfile(library, copy)
    return copy
