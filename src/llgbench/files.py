"""Files: reading what others wrote, writing so that a reader never sees half a file.

Foreign files are read in one way: regular files only, up to a limit, decoded into a type. Whatever
is wrong ends in one error that names the file, the place in it, and what was expected.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import json
import os
import secrets
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from llgbench.errors import FileError, LlgbenchError

T = TypeVar("T")

# Far above any grammar, text, catalogue or result file; a larger one is a mistake.
LIMIT = 256 << 20

_CHUNK = 1 << 20


def read(path: Path, *, limit: int = LIMIT, error: type[LlgbenchError] = FileError) -> bytes:
    """Return the content of a regular file.

    Args:
        path: the file; a FIFO, a device or a folder is refused, so that reading cannot hang.
        limit: the largest size in bytes.
        error: the class that is raised.

    Raises:
        LlgbenchError: of class ``error``; the file cannot be read, or is larger than ``limit``.
    """
    with _regular(path, error) as file:
        # A read of so many bytes would take the memory for all of them first.
        large = os.fstat(file.fileno()).st_size > limit
        data = b"" if large else file.read()
    if large or len(data) > limit:
        raise error(f"{path}: larger than {limit >> 20} MiB, which no file of this kind is")
    return data


def read_head(path: Path, size: int, *, error: type[LlgbenchError] = FileError) -> bytes:
    """Return the first bytes of a regular file of any size; see :func:`read`."""
    with _regular(path, error) as file:
        return file.read(size)


def read_text(path: Path, *, limit: int = LIMIT, error: type[LlgbenchError] = FileError) -> str:
    """Return the content of a regular file as text, UTF-8; see :func:`read`."""
    try:
        return read(path, limit=limit, error=error).decode()
    except UnicodeDecodeError as why:
        raise error(f"{path}: not UTF-8 at byte {why.start}") from None


def read_json(
    path: Path, kind: type[T], *, limit: int = LIMIT, error: type[LlgbenchError] = FileError
) -> T:
    """Read a JSON file into a type; see :func:`from_json`."""
    return from_json(read(path, limit=limit, error=error), kind, str(path), error=error)


def from_json(
    data: bytes | str, kind: type[T], where: str, *, error: type[LlgbenchError] = FileError
) -> T:
    """Decode JSON into a type: a dataclass, a ``msgspec.Struct``, or built from builtins.

    Args:
        data: JSON; numbers that JSON does not have (NaN, Infinity) are refused.
        kind: what it must hold.
        where: the file, and the line where one file holds several; begins the message.
        error: the class that is raised.

    Raises:
        LlgbenchError: of class ``error``; the message names the place and what was expected.
    """
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_path)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as why:
        raise error(f"{where}: {_reason(why)}") from None


def read_loose_json(
    path: Path, kind: type[T], *, limit: int = LIMIT, error: type[LlgbenchError] = FileError
) -> T:
    """Read JSON as Python and ASV write it, with NaN and Infinity, into a type.

    Raises:
        LlgbenchError: of class ``error``; as :func:`from_json`.
    """
    try:
        content = json.loads(read(path, limit=limit, error=error))
    except (ValueError, RecursionError) as why:
        raise error(f"{path}: {_reason(why)}") from None
    return convert(content, kind, str(path), error=error)


def read_toml(
    path: Path, kind: type[T], *, limit: int = LIMIT, error: type[LlgbenchError] = FileError
) -> T:
    """Read a TOML file into a type.

    Raises:
        LlgbenchError: of class ``error``; as :func:`from_json`.
    """
    text = read_text(path, limit=limit, error=error)
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as why:
        raise error(f"{path}: {_reason(why)}") from None
    return convert(content, kind, str(path), error=error)


def convert(
    content: Any, kind: type[T], where: str, *, error: type[LlgbenchError] = FileError
) -> T:
    """Turn builtins into a type; see :func:`from_json`."""
    try:
        return msgspec.convert(content, kind, dec_hook=_path)
    except (msgspec.ValidationError, RecursionError, OverflowError, UnicodeError) as why:
        # JSON may hold half a surrogate pair, which is no text.
        raise error(f"{where}: {_reason(why)}") from None


def _path(kind: type, value: Any) -> Any:
    """Return a path, for which JSON has no type; for decoders."""
    if issubclass(kind, Path) and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(f"{kind.__name__} has no form in JSON")


def write(path: Path, content: str | bytes, *, error: type[LlgbenchError] = FileError) -> None:
    """Write a file without a name, then give it its name: a reader sees the old or the new.

    The folder is made where it is missing. Two writers do not disturb each other: either wins. A
    writer that is killed leaves nothing.

    Raises:
        LlgbenchError: of class ``error``; the file cannot be written. Nothing is left behind.
    """
    data = content.encode() if isinstance(content, str) else content
    part = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}.part")
    made: list[Path] = []
    try:
        made = [p for p in path.parents if not p.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        with _nameless(part) as file:
            file.write(data)
            file.flush()
            if not part.exists() and not _named(file, path):
                _named(file, part)
        if part.exists():
            part.replace(path)
    except OSError as why:
        raise error(f"cannot write {path}: {why.strerror}") from None
    finally:
        with suppress(OSError):
            part.unlink()
        _remove_empty(made)


def _nameless(part: Path) -> BinaryIO:
    """Open a file without a name beside ``part``; that one where the file system has none such."""
    try:
        descriptor = os.open(part.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    except OSError as why:
        if why.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
        return part.open("xb")
    return open(descriptor, "wb")


def _named(file: BinaryIO, path: Path) -> bool:
    """Give an open file a name; return False where there is one of that name."""
    try:
        # Only with a folder's descriptor does Python follow the link, which proc(5) asks for.
        os.link(
            f"/proc/self/fd/{file.fileno()}", path, src_dir_fd=file.fileno(), follow_symlinks=True
        )
    except FileExistsError:
        return False
    return True


@contextmanager
def folder(
    path: Path, *, numbered: bool = False, error: type[LlgbenchError] = FileError
) -> Iterator[Path]:
    """Make a folder for what a block writes, before it begins; yield it.

    Where nothing came into it, it and the parents made for it are removed again.

    Args:
        path: the folder; it may be there already.
        numbered: take ``path-2`` and so on where it is, so that no two have one folder.
        error: the class that is raised.

    Raises:
        LlgbenchError: of class ``error``; it cannot be made, or not be written into.
    """
    made = [path]
    try:
        try:
            made += [p for p in path.parents if not p.exists()]
            if numbered:
                path.parent.mkdir(parents=True, exist_ok=True)
                path = made[0] = _make_numbered(path)
            else:
                made = made[1 if path.exists() else 0 :]
                path.mkdir(parents=True, exist_ok=True)
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as why:
            raise error(f"cannot write {path}: {why.strerror}") from None
        yield path
    finally:
        _remove_empty(made)


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders, the innermost first, up to one that something is in."""
    for one in folders:
        with suppress(OSError):
            one.rmdir()


def _make_numbered(path: Path) -> Path:
    for number in itertools.count(1):
        place = path if number == 1 else path.with_name(f"{path.name}-{number}")
        with suppress(FileExistsError):
            place.mkdir()
            return place
    raise AssertionError  # for mypy: the numbers do not end


def sha256(path: Path, *, error: type[LlgbenchError] = FileError) -> str:
    """Return the sha256 of a regular file of any size, in hex.

    Raises:
        LlgbenchError: of class ``error``; it cannot be read.
    """
    digest = hashlib.sha256()
    with _regular(path, error) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def locked(
    path: Path,
    doing: str = "",
    report: Callable[[str], None] = lambda _: None,
    *,
    error: type[LlgbenchError] = FileError,
) -> Iterator[None]:
    """Hold a lock file for the time of the block; wait where another process holds it.

    The file stays: a lock file that is removed can be held twice.

    Args:
        path: the lock file.
        doing: what the holder does, such as ``fetches vocabularies``; shown to who waits.
        report: called with one line before this process waits, naming the holder.
        error: the class that is raised.

    Raises:
        LlgbenchError: of class ``error``; the file cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", errors="replace")
    except OSError as why:
        raise error(f"cannot write {path}: {why.strerror}") from None
    with file:
        # Some network file systems have no locks; then two at once are the user's to avoid.
        with suppress(OSError):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                report(f"waiting for {one_line(file.read(300)) or 'another process'}")
                fcntl.flock(file, fcntl.LOCK_EX)
            file.truncate(0)
            file.write(f"process {os.getpid()}, which {doing}" if doing else "")
            file.flush()
        yield


def one_line(text: object, limit: int = 300) -> str:
    """Return a message on one line, cut with an ellipsis where it is longer than ``limit``."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


@contextmanager
def _regular(path: Path, error: type[LlgbenchError]) -> Iterator[BinaryIO]:
    """Open a regular file for the time of the block; what fails in it names the file too."""
    try:
        # Opening a FIFO waits for a writer unless it is told not to.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise error(f"{path}: not a regular file")
            with open(descriptor, "rb", closefd=False) as file:
                yield file
        finally:
            os.close(descriptor)
    except LlgbenchError:
        raise
    except OSError as why:
        raise error(f"{path}: {why.strerror}") from None
    except ValueError as why:  # a NUL in the name
        raise error(f"{str(path)!r}: {why}") from None


def _reason(why: Exception) -> str:
    return "nested too deeply" if isinstance(why, RecursionError) else one_line(why)
