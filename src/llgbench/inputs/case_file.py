"""Cases of files: a folder of grammars/ with its case.toml, or a grammar and texts by path."""

from __future__ import annotations

import os
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

from msgspec import Meta, Struct

from llgbench import files, paths
from llgbench.errors import CaseError, UnknownNameError
from llgbench.inputs.case import Case, Outcome, Text
from llgbench.inputs.case_text import LIMIT, parse_json, read, shown
from llgbench.inputs.grammar import declared_options, options_of

_CASE_FILE = "case.toml"

# As case.toml is written.
_Value = Annotated[int, Meta(ge=0, le=999_999_999)]


class _Repeat(Struct, forbid_unknown_fields=True):
    repeat: str
    times: Annotated[int, Meta(ge=0)] | str


class _RejectAt(Struct, forbid_unknown_fields=True):
    reject_at: Annotated[int, Meta(ge=0)] | str | None = None
    reject_at_value_plus: int | None = None


class _Entry(Struct, forbid_unknown_fields=True):
    name: str | None = None
    file: str | None = None
    text: str | None = None
    pieces: list[str | _Repeat] | None = None
    special_tokens: list[Annotated[str, Meta(min_length=1)]] = []
    stock: str | _RejectAt | None = None
    fallback: str | _RejectAt | None = None
    note: str = ""


class _Parameter(Struct, forbid_unknown_fields=True):
    name: str
    values: Annotated[list[_Value], Meta(min_length=1)]


class _Table(Struct, forbid_unknown_fields=True):
    reason: str = ""
    origin: str = ""
    tags: list[str] = []
    options: dict[str, Any] = {}
    parameter: _Parameter | None = None
    texts: list[_Entry] = []


def names(root: Path | None = None) -> list[str]:
    """Return the names of all cases, members of families spelled out.

    Raises:
        CaseError: a case.toml is malformed.
    """
    found = []
    for folder in sorted(p.parent for p in _folder(root).glob(f"*/{_CASE_FILE}")):
        parameter = _table(folder).parameter
        if parameter is None:
            found.append(folder.name)
        else:
            found += [f"{folder.name}@{value}" for value in parameter.values]
    return found


def load(name: str, root: Path | None = None) -> Case:
    """Read one case from grammars/, or from any folder whose path (with a ``/``) is given.

    Raises:
        UnknownNameError: there is no such case.
        CaseError: its files are missing, malformed, or not UTF-8.
    """
    folder, member = _place(name, root)
    # A name that no file can have is unknown, not an error of its own.
    if not os.path.lexists(folder / _CASE_FILE):
        if "/" in name:
            raise CaseError(f"{folder / _CASE_FILE}: no such file")
        raise UnknownNameError("case", name, names(root))
    table = _table(folder)
    value = _member_value(folder, table.parameter, name, member, root)

    schema, lark = folder / "schema.json", folder / "grammar.lark"
    if os.path.lexists(schema) == os.path.lexists(lark):
        raise CaseError(f"{folder}: needs one of schema.json and grammar.lark")
    path = schema if os.path.lexists(schema) else lark
    source = read(_inside(folder, path.name, str(folder)))
    if table.parameter is not None:
        source = string.Template(source).safe_substitute({table.parameter.name: value})
    label = os.path.basename(os.path.abspath(folder))
    return _case(
        f"{label}@{value}" if value is not None else label,
        source,
        path,
        reason=table.reason,
        texts=tuple(_texts(folder, table, value)),
        tags=tuple(table.tags),
        options=options_of(table.options, str(folder / _CASE_FILE)),
        value=value,
    )


def from_files(grammar: Path, texts: Sequence[Path], *, special_tokens: bool = False) -> Case:
    """Make a case of a grammar file (``.json``: a schema; else Lark) and text files.

    Nothing is recorded of the texts; each is named by its path as given.

    Args:
        grammar: the grammar's file.
        texts: the texts' files.
        special_tokens: whether the name of a special token in a text stands for the token.

    Raises:
        CaseError: a file is missing, malformed, not UTF-8, or given twice.
    """
    source = read(grammar)
    own: dict[str, Text] = {}
    for path in texts:
        name = shown(path)
        if name in own:
            raise CaseError(f"{name}: the text is given twice")
        data = read(path).encode()
        own[name] = Text(name, data, special_tokens=None if special_tokens else ())
    return _case(
        shown(grammar.stem),
        source,
        grammar,
        reason="given on the command line",
        texts=tuple(own.values()),
        tags=("json",) if grammar.suffix == ".json" else (),
    )


def _case(
    name: str,
    source: str,
    path: Path,
    *,
    reason: str,
    texts: tuple[Text, ...],
    tags: tuple[str, ...],
    options: Mapping[str, Any] | None = None,
    value: int | None = None,
) -> Case:
    """Make a case of a grammar's text: a schema where its file is JSON, else Lark."""
    is_schema = path.suffix == ".json"
    own: dict[str, Any] = {}
    if is_schema:
        parse_json(source, str(path))
    else:
        own = options_of(declared_options(source, path), str(path))
    return Case(
        name=name,
        kind="json_schema" if is_schema else "lark",
        source=source,
        path=path,
        reason=reason,
        texts=texts,
        tags=tags,
        options={**own, **(options or {})},
        value=value,
    )


# ---- parts -------------------------------------------------------------------------------------


def _folder(root: Path | None) -> Path:
    return (root or paths.root()) / "grammars"


def _table(folder: Path) -> _Table:
    path = _inside(folder, _CASE_FILE, str(folder))
    return files.read_toml(path, _Table, limit=LIMIT, error=CaseError)


def _place(name: str, root: Path | None) -> tuple[Path, str]:
    """Return the folder that a name means, and what it says behind it of a member."""
    if "/" not in name:
        base, at, member = name.partition("@")
        return _folder(root) / base, at + member
    folder = Path(name)
    base, at, member = folder.name.rpartition("@")
    # A folder of any name may be a case; only where it is none the name says which member.
    if not at or not base or os.path.lexists(folder / _CASE_FILE):
        return folder, ""
    return folder.with_name(base), at + member


def _member_value(
    folder: Path, parameter: _Parameter | None, name: str, member: str, root: Path | None
) -> int | None:
    if parameter is None:
        if member and "/" in name:
            raise CaseError(f"{folder}: the case has no parameter, so it has no member {member}")
        if member:
            raise UnknownNameError("case", name, names(root))
        return None
    # Any natural number makes a member; the listed ones are those the suite runs. One number has
    # one spelling, so that one member has one name.
    if not re.fullmatch(r"@(0|[1-9][0-9]{0,8})", member):
        known = [f"{folder.name}@{value}" for value in parameter.values]
        raise UnknownNameError("case", name, known)
    return int(member[1:])


def _texts(folder: Path, table: _Table, value: int | None) -> Iterator[Text]:
    seen: set[str] = set()
    room = LIMIT
    for number, entry in enumerate(table.texts):
        where = f"{folder / _CASE_FILE}: text {number}"
        data = _text_data(folder, entry, table.parameter, value, room, where)
        room -= len(data)
        name = entry.name or Path(entry.file or "").stem or entry.text
        if name is None:
            raise CaseError(f"{where}: needs a name")
        if name in seen:
            raise CaseError(f"{where}: a second text is named {name!r}")
        seen.add(name)
        yield Text(
            name=name,
            data=data,
            stock=_outcome(entry.stock, value, len(data), where),
            fallback=_outcome(entry.fallback, value, len(data), where),
            note=entry.note,
            special_tokens=tuple(entry.special_tokens),
        )


def _text_data(
    folder: Path, entry: _Entry, parameter: _Parameter | None, value: int | None, room: int,
    where: str,
) -> bytes:  # fmt: skip
    given = [part for part in (entry.file, entry.text, entry.pieces) if part is not None]
    if len(given) != 1:
        raise CaseError(f"{where}: needs one of file, text and pieces")
    if entry.file is not None:
        data = read(_inside(folder, entry.file, where)).encode()
    elif entry.text is not None:
        data = entry.text.encode()
    elif parameter is None or value is None or entry.pieces is None:
        raise CaseError(f"{where}: pieces need a parameter")
    else:
        parts = [_piece(piece, parameter, value, where) for piece in entry.pieces]
        # Summed up before it is built: a line of TOML may ask for a terabyte.
        if sum(len(unit) * times for unit, times in parts) > room:
            _too_large(where)
        data = b"".join(unit * times for unit, times in parts)
    if len(data) > room:
        _too_large(where)
    return data


def _too_large(where: str) -> NoReturn:
    raise CaseError(f"{where}: the texts of a case may have {LIMIT >> 20} MiB together")


def _piece(
    piece: str | _Repeat, parameter: _Parameter, value: int, where: str
) -> tuple[bytes, int]:
    """Return what a piece repeats, and how often."""
    if isinstance(piece, str):
        return piece.encode(), 1
    if isinstance(piece.times, int):
        return piece.repeat.encode(), piece.times
    if piece.times == parameter.name:
        return piece.repeat.encode(), value
    raise CaseError(
        f"{where}: times is a number or the parameter {parameter.name!r}, not {piece.times!r}"
    )


def _outcome(
    entry: str | _RejectAt | None, value: int | None, length: int, where: str
) -> Outcome | None:
    match entry:
        case None:
            return None
        case "accept":
            return Outcome()
        case _RejectAt(reject_at=int(at), reject_at_value_plus=None) if at <= length:
            return Outcome(at)
        case _RejectAt(reject_at="end", reject_at_value_plus=None):
            return Outcome(length)
        # In a family the offset moves with the parameter: value + plus.
        case _RejectAt(reject_at=None, reject_at_value_plus=int(plus)) if (
            value is not None and 0 <= value + plus <= length
        ):
            return Outcome(value + plus)
    shown = entry
    if isinstance(entry, _RejectAt):
        pairs = [(name, getattr(entry, name)) for name in entry.__struct_fields__]
        shown = str({name: value for name, value in pairs if value is not None})
    raise CaseError(
        f"{where}: an outcome is 'accept' or {{reject_at = N}}, N within the text, not {shown!r}"
    )


def _inside(folder: Path, name: str, where: str) -> Path:
    """Return the path of a case's file.

    Raises:
        CaseError: it is not below the case's own folder.
    """
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL
        inside = True  # reading it says what is wrong
    if Path(name).is_absolute() or ".." in Path(name).parts or not inside:
        raise CaseError(f"{where}: {name!r} is not below the case's own folder")
    return path
