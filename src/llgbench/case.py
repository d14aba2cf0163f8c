"""Cases: one folder under grammars/ each, and MaskBench files read as cases.

A case is a grammar with texts and what is known about them. ``case.toml`` is documented in
grammars/README.md. A case with a parameter is a family: ``checkpoint`` has one member per value,
named ``checkpoint@64``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import string
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from llgbench import paths
from llgbench.errors import CaseError, UnknownNameError

Kind = Literal["lark", "json_schema"]
_KEYS = {"reason", "origin", "tags", "options", "parameter", "texts"}
_TOML_KINDS = {str: "a string", dict: "a table", list: "a list"}
_TEXT_KEYS = {"name", "file", "text", "pieces", "stock", "fallback", "note"}


@dataclass(frozen=True)
class Outcome:
    """What a lexer does with a text: accepts it, or rejects it at a byte.

    Attributes:
        reject_at: offset of the first byte that cannot be consumed; the text's length where only
            the end of input is refused; None where the text is accepted.
    """

    reject_at: int | None = None

    @property
    def accepted(self) -> bool:
        """Whether the whole text is in the language as this lexer reads it."""
        return self.reject_at is None

    def __str__(self) -> str:
        return "accepted" if self.reject_at is None else f"rejected at byte {self.reject_at}"


@dataclass(frozen=True)
class Text:
    """One text of a case.

    Attributes:
        name: unique within the case.
        data: the bytes; always valid UTF-8.
        stock: what stock llguidance does with it; None where nothing is recorded.
        fallback: what the greedy lexeme fallback does with it; None where nothing is recorded.
        note: why the text is there, where its name does not say it.
    """

    name: str
    data: bytes = field(repr=False)
    stock: Outcome | None = None
    fallback: Outcome | None = None
    note: str = ""


@dataclass(frozen=True)
class Case:
    """A grammar with its texts.

    Attributes:
        name: folder name, with ``@value`` for a member of a family, or the MaskBench file's stem.
        kind: ``lark`` or ``json_schema``.
        source: the grammar text as it stands in its file (after substitution of the parameter).
        path: the grammar's file, for messages.
        options: llguidance grammar options the case itself needs (``no_forcing`` and the like).
    """

    name: str
    kind: Kind
    source: str = field(repr=False)
    path: Path
    reason: str
    texts: tuple[Text, ...]
    tags: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    value: int | None = None

    def lark(self, options: Mapping[str, Any] | None = None) -> str:
        """Return the grammar as llama.cpp would hand it over: Lark with an options line.

        A schema becomes ``start: %json {…}`` as in llama.cpp's json_schema_to_grammar, so that
        options reach it and every variant compiles the same kind of input.

        Args:
            options: merged over the case's own options.
        """
        merged = {**self.options, **(options or {})}
        body = f"start: %json {self.source}" if self.kind == "json_schema" else self.source
        return with_options(body, merged)

    @cached_property
    def digest(self) -> str:
        """Return a hash of all that is measured: kind, options, grammar and texts."""
        h = hashlib.sha256()
        for part in (self.kind, json.dumps(dict(self.options), sort_keys=True), self.source):
            h.update(part.encode() + b"\0")
        for text in self.texts:
            h.update(text.name.encode() + b"\0" + text.data + b"\0")
        return h.hexdigest()[:16]


def with_options(grammar: str, options: Mapping[str, Any]) -> str:
    """Return a Lark grammar with llguidance's options in a line before it."""
    return f"%llguidance {json.dumps(dict(options))}\n{grammar}"


def names(root: Path | None = None) -> list[str]:
    """Return the names of all cases, members of families spelled out."""
    folder = _folder(root)
    found = []
    for path in sorted(p.parent for p in folder.glob("*/case.toml")):
        parameter = _read_toml(path / "case.toml").get("parameter")
        if parameter is None:
            found.append(path.name)
        else:
            found += [f"{path.name}@{value}" for value in _values(path, parameter)]
    return found


def load(name: str, root: Path | None = None) -> Case:
    """Read one case from grammars/, or from any folder whose path (with a ``/``) is given.

    Raises:
        UnknownNameError: there is no such case.
        CaseError: its files are missing, malformed, or not UTF-8.
    """
    base, at, member = name.partition("@")
    folder = Path(base) if "/" in base else _folder(root) / base
    # os.path: a name that no file can have is unknown, not an error of its own.
    if not os.path.isfile(folder / "case.toml"):
        if "/" in base:
            raise CaseError(f"{folder / 'case.toml'}: no such file")
        raise UnknownNameError("case", name, names(root))
    table = _read_toml(folder / "case.toml")
    _check_table(folder / "case.toml", table)
    value = _member_value(folder, table.get("parameter"), name, at + member, root)

    schema, lark = folder / "schema.json", folder / "grammar.lark"
    if schema.is_file() == lark.is_file():
        raise CaseError(f"{folder}: needs one of schema.json and grammar.lark")
    path = schema if schema.is_file() else lark
    source = _read_utf8(path)
    if value is not None:
        source = string.Template(source).safe_substitute({table["parameter"]["name"]: value})
    if path is schema:
        _parse_json(source, path)
    return Case(
        name=f"{folder.name}@{value}" if value is not None else folder.name,
        kind="json_schema" if path is schema else "lark",
        source=source,
        path=path,
        reason=table.get("reason", ""),
        texts=tuple(_texts(folder, table, value)),
        tags=tuple(table.get("tags", ())),
        options=dict(table.get("options", {})),
        value=value,
    )


def from_files(grammar: Path, texts: Sequence[Path]) -> Case:
    """Make a case of a grammar file (``.json``: a schema; else Lark) and text files.

    Nothing is recorded of the texts but that they should be accepted.

    Raises:
        CaseError: a file is missing, malformed, or not UTF-8.
    """
    source = _read_utf8(grammar)
    is_schema = grammar.suffix == ".json"
    if is_schema:
        _parse_json(source, grammar)
    elif source.lstrip().startswith("%llguidance"):
        raise CaseError(f"{grammar}: leave the %llguidance line out; a variant's options go there")
    return Case(
        name=grammar.stem,
        kind="json_schema" if is_schema else "lark",
        source=source,
        path=grammar,
        reason="given on the command line",
        texts=tuple(
            Text(path.name, _read_utf8(path).encode(), Outcome(), Outcome()) for path in texts
        ),
        tags=("json",) if is_schema else (),
    )


def load_maskbench(folder: Path) -> list[Case]:
    """Read every MaskBench file in a folder as a case, in order of name.

    A MaskBench file is a JSON object with ``schema`` and ``tests``, each test with ``data`` and
    ``valid``; a test's text is its data as JSON with indent 2, as the MaskBench harness writes it.

    Raises:
        CaseError: the folder has no such file, or one is malformed.
    """
    found = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if not found:
        raise CaseError(f"{folder}: no MaskBench files (*.json) there")
    return [_maskbench_case(path) for path in found]


def _maskbench_case(path: Path) -> Case:
    content = _parse_json(_read_utf8(path), path)
    if not isinstance(content, dict) or "schema" not in content:
        raise CaseError(f"{path}: no MaskBench file (it has no 'schema')")
    texts = []
    tests = content.get("tests", [])
    if not isinstance(tests, list):
        raise CaseError(f"{path}: 'tests' is no list")
    for number, test in enumerate(tests):
        if not isinstance(test, dict) or "data" not in test or "valid" not in test:
            raise CaseError(f"{path}: test {number} has no 'data' or no 'valid'")
        if not isinstance(test["valid"], bool):
            raise CaseError(f"{path}: test {number}: 'valid' is true or false")
        # Only validity by the schema is known, not the byte where an invalid text must fail.
        outcome = Outcome() if test["valid"] else None
        texts.append(
            Text(
                name=f"{'valid' if test['valid'] else 'invalid'}-{number}",
                data=_pretty(test["data"], f"{path}: test {number}").encode(),
                stock=outcome,
                fallback=outcome,
            )
        )
    return Case(
        name=path.stem,
        kind="json_schema",
        source=_pretty(content["schema"], f"{path}: schema"),
        path=path,
        reason=str(content.get("description", "")),
        texts=tuple(texts),
        tags=("maskbench",),
    )


def _pretty(content: Any, where: str) -> str:
    text = json.dumps(content, indent=2, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CaseError(f"{where} is not UTF-8 ({error.reason})") from None
    return text


def _folder(root: Path | None) -> Path:
    return (root or paths.root()) / "grammars"


def _check_table(path: Path, table: Mapping[str, Any]) -> None:
    unknown = sorted(table.keys() - _KEYS)
    if unknown:
        raise CaseError(f"{path}: unknown key {unknown[0]!r}")
    for key, kind in (("reason", str), ("origin", str), ("options", dict), ("texts", list)):
        if not isinstance(table.get(key, kind()), kind):
            raise CaseError(f"{path}: {key} is {_TOML_KINDS[kind]}, not {table[key]!r}")
    tags = table.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise CaseError(f"{path}: tags is a list of strings, not {tags!r}")
    for number, entry in enumerate(table.get("texts", [])):
        if not isinstance(entry, dict):
            raise CaseError(f"{path}: text {number} is a table, not {entry!r}")


def _values(folder: Path, parameter: Any) -> list[int]:
    match parameter:
        case {"name": str(), "values": [_, *_] as values} if all(
            type(v) is int and v >= 0 for v in values
        ):
            return list(values)
    raise CaseError(
        f"{folder / 'case.toml'}: parameter needs a name and a list of natural numbers as values"
    )


def _member_value(
    folder: Path, parameter: Any, name: str, member: str, root: Path | None
) -> int | None:
    if parameter is None:
        if member:
            raise UnknownNameError("case", name, names(root))
        return None
    values = _values(folder, parameter)
    # Any natural number makes a member; the listed ones are those the suite runs. One number has
    # one spelling, so that one member has one name.
    if not re.fullmatch(r"@(0|[1-9][0-9]{0,8})", member):
        raise UnknownNameError("case", name, [f"{folder.name}@{value}" for value in values])
    return int(member[1:])


def _texts(folder: Path, table: Mapping[str, Any], value: int | None) -> Iterator[Text]:
    seen: set[str] = set()
    for number, entry in enumerate(table.get("texts", [])):
        where = f"{folder / 'case.toml'}: text {number}"
        unknown = sorted(entry.keys() - _TEXT_KEYS)
        if unknown:
            raise CaseError(f"{where}: unknown key {unknown[0]!r}")
        data = _text_data(folder, entry, table.get("parameter"), value, where)
        name = entry.get("name") or Path(entry.get("file", "")).stem or entry.get("text")
        if not isinstance(name, str):
            raise CaseError(f"{where}: needs a name")
        if name in seen:
            raise CaseError(f"{where}: a second text is named {name!r}")
        seen.add(name)
        yield Text(
            name=name,
            data=data,
            stock=_outcome(entry.get("stock"), value, len(data), where),
            fallback=_outcome(entry.get("fallback"), value, len(data), where),
            note=str(entry.get("note", "")),
        )


def _text_data(
    folder: Path, entry: Mapping[str, Any], parameter: Any, value: int | None, where: str
) -> bytes:
    if len(entry.keys() & {"file", "text", "pieces"}) != 1:
        raise CaseError(f"{where}: needs one of file, text and pieces")
    match entry:
        case {"file": str(file)}:
            return _read_utf8(folder / file).encode()
        case {"text": str(text)}:
            return text.encode()
        case {"pieces": [*pieces]} if parameter is not None and value is not None:
            return "".join(
                _piece(piece, parameter["name"], value, where) for piece in pieces
            ).encode()
    raise CaseError(f"{where}: a file and a text are strings; pieces, a list, need a parameter")


def _piece(piece: Any, parameter: str, value: int, where: str) -> str:
    match piece:
        case str():
            return piece
        case {"repeat": str(unit), "times": times, **rest} if times == parameter and not rest:
            return unit * value
        case {"repeat": str(unit), "times": int(times), **rest} if not rest:
            return unit * times
    raise CaseError(f"{where}: a piece is a string or {{repeat, times}}, not {piece!r}")


def _outcome(entry: Any, value: int | None, length: int, where: str) -> Outcome | None:
    match entry:
        case None:
            return None
        case "accept":
            return Outcome()
        case {"reject_at": at, **rest} if type(at) is int and 0 <= at <= length and not rest:
            return Outcome(at)
        case {"reject_at": "end", **rest} if not rest:
            return Outcome(length)
        # In a family the offset moves with the parameter: value + plus.
        case {"reject_at_value_plus": plus, **rest} if (
            type(plus) is int and value is not None and 0 <= value + plus <= length and not rest
        ):
            return Outcome(value + plus)
    raise CaseError(
        f"{where}: an outcome is 'accept' or {{reject_at = N}}, N within the text, not {entry!r}"
    )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_read_utf8(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CaseError(f"{path}: {error}") from None


def _read_utf8(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise CaseError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CaseError(f"{path}: not UTF-8 at byte {error.start}") from None
    except ValueError as error:  # a NUL in the name
        raise CaseError(f"{str(path)!r}: {error}") from None


def _parse_json(source: str, path: Path) -> Any:
    try:
        return json.loads(source)
    except (ValueError, RecursionError) as error:
        raise CaseError(f"{path}: {error}") from None
