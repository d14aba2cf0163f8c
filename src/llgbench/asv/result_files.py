"""What ASV's files must hold to be read: each is read or refused with its name.

What they hold is documented by ASV as version 2 of its result files: JSON with NaN in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec

from llgbench import files
from llgbench.errors import FileError, RecordError

T = TypeVar("T")

# The version of ASV's result files that is read here.
VERSION = 2

# Milliseconds since 1970, until the year 9999.
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class Machine(msgspec.Struct):
    """Of ``machine.json``."""

    machine: Name


class Parameters(msgspec.Struct):
    """Of the machine, in a file of results."""

    machine: Name


class File(msgspec.Struct):
    """A file of results; a row per benchmark, its columns named once."""

    commit_hash: Name
    env_name: str
    date: Milliseconds
    params: Parameters
    python: str
    requirements: dict[str, Any]
    result_columns: list[str]
    results: dict[str, list[Any]]
    env_vars: dict[str, Any] = {}
    durations: dict[str, float | None] = {}


class Row(msgspec.Struct):
    """One benchmark of a file: a value for every combination of its parameters."""

    result: list[float | bool | None] | None
    params: list[list[str]]
    version: str | None = None
    started_at: int | None = None
    stats_ci_99_a: list[float | None] | None = None
    stats_ci_99_b: list[float | None] | None = None


class About(msgspec.Struct):
    """What the index says of a benchmark."""

    unit: str = ""
    version: str | None = None


def text_of(text: str) -> str:
    """Return text as it can be shown: on one line, and in every encoding of Unicode."""
    return files.one_line(text.encode(errors="replace").decode(), 10_000)


def versioned(path: Path) -> dict[str, Any]:
    """Return the content of one of ASV's files that have this version.

    Raises:
        RecordError: it is damaged, or of another version.
    """
    content: dict[str, Any] = decoded(path, dict[str, Any])
    # Its first version had no such key.
    version = content.get("version", 1)
    if version == 1:
        raise RecordError(
            f"{path}: version 1 of ASV's files, of which llgbench reads {VERSION}; run: asv update"
        )
    if version != VERSION:
        raise RecordError(
            f"{path}: version {text_of(repr(version))} of ASV's files, of which llgbench reads "
            f"{VERSION}; write it by an asv of that version"
        )
    return content


def decoded(path: Path, kind: Any) -> Any:
    """Return the content of one of ASV's files, of a type.

    Raises:
        RecordError: it cannot be read, or is damaged.
    """
    try:
        return files.read_loose_json(path, kind)
    except FileError as error:
        refuse(str(error))


def converted(content: Mapping[str, Any], kind: type[T], where: str) -> T:
    """Return a part of a file by its type; ``where`` begins the message.

    Raises:
        RecordError: it is damaged.
    """
    try:
        return files.convert(content, kind, where)
    except FileError as error:
        refuse(str(error))


def refuse(message: str) -> NoReturn:
    """Refuse a file, and say what to do.

    Raises:
        RecordError: always.
    """
    raise RecordError(
        f"{message}; not a whole result file of ASV: restore it, or remove it and run asv again"
    ) from None
