"""Libraries kept in the cache: each with its sha256 beside it, checked before it is loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from llgbench import files, paths
from llgbench.errors import EngineError, FileError, InputError, LlgbenchError

_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_kept(library: Path) -> bool:
    """Return whether a library is there with its sha256; its content is checked by :func:`check`.

    What an earlier version kept without one is not taken for kept.
    """
    return os.path.isfile(library) and os.path.isfile(_record(library))


def keep(library: Path, content: bytes, release: str) -> None:
    """Write a library into the cache, and its sha256 and llguidance's release beside it.

    Raises:
        InputError: the cache cannot be written.
    """
    with writing(library.parent):
        # Without its sha256 a library is not taken for kept: it goes first and comes last.
        _record(library).unlink(missing_ok=True)
        files.write(library, content)
        files.write(_release(library), release + "\n")
        files.write(_record(library), files.sha256(library) + "\n")


def release_of(library: Path) -> str | None:
    """Return llguidance's release by what lies beside a library; None where nothing says it."""
    with suppress(FileError):
        return files.read_text(_release(library), limit=1 << 10).strip()
    # As an installed package: llguidance/_lib….so beside llguidance-1.6.1.dist-info/.
    for folder in library.parent.parent.glob(f"{library.parent.name}-*.dist-info"):
        return folder.name.removesuffix(".dist-info").rpartition("-")[2]
    return None


def check(library: Path) -> Path:
    """Return a kept library, once its content is what was kept.

    Raises:
        EngineError: it was altered since; the message says what to remove.
    """
    recorded = files.read_text(_record(library), limit=1 << 10, error=EngineError).strip()
    found = files.sha256(library, error=EngineError)
    if not _SHA256.fullmatch(recorded) or found != recorded:
        raise EngineError(
            f"{library} was altered since it was kept (its sha256 is {found[:12]}…, recorded is "
            f"{recorded[:12]!r}); it is not loaded; remove {library.parent} to have it made anew"
        )
    return library


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Make a folder of the cache for the time of the block, and say what to do where it fails.

    Raises:
        InputError: it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except LlgbenchError as error:
        if isinstance(error, FileError):
            raise InputError(f"{error}; {paths.CACHE_VARIABLE} names another cache") from None
        raise
    except OSError as error:
        raise InputError(
            f"cannot write {folder}: {error.strerror}; {paths.CACHE_VARIABLE} names another cache"
        ) from None


def _release(library: Path) -> Path:
    return library.with_name(f"{library.name}.release")


def _record(library: Path) -> Path:
    return library.with_name(f"{library.name}.sha256")
