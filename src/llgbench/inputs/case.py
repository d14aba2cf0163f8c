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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_args

from msgspec import Meta, Struct

from llgbench import files, paths
from llgbench.errors import CaseError, GrammarError, UnknownNameError
from llgbench.inputs.variant import FALLBACK_OPTIONS

Kind = Literal["lark", "json_schema"]
TextFormat = Literal["maskbench", "compact", "indent2"]
TEXT_FORMATS: tuple[TextFormat, ...] = get_args(TextFormat)

# Of a grammar, and of all texts of a case together. The largest case here has 2 MiB.
LIMIT = 64 << 20

_CASE_FILE = "case.toml"


@dataclass(frozen=True)
class Outcome:
    """What a lexer does with a text: accepts it, or rejects it at a byte.

    Attributes:
        reject_at: offset of the first byte that cannot be consumed; the text's length where only
            the end of input is refused; None where the text is accepted, or ``anywhere``.
        anywhere: the text must be rejected, and nobody recorded at which byte.
    """

    reject_at: int | None = None
    anywhere: bool = False

    @property
    def accepted(self) -> bool:
        """Whether the whole text is in the language as this lexer reads it."""
        return self.reject_at is None and not self.anywhere

    def met_by(self, found: Outcome) -> bool:
        """Whether what was found is what this one records."""
        return not found.accepted if self.anywhere else self == found

    def __str__(self) -> str:
        if self.anywhere:
            return "rejected"
        return "accepted" if self.reject_at is None else f"rejected at byte {self.reject_at}"


REJECTED = Outcome(anywhere=True)


@dataclass(frozen=True)
class Text:
    """One text of a case.

    Attributes:
        name: unique within the case.
        data: the bytes; always valid UTF-8.
        stock: what stock llguidance does with it; None where nothing is recorded.
        fallback: what the greedy lexeme fallback does with it; None where nothing is recorded.
        note: why the text is there, where its name does not say it.
        special_tokens: names in the text that stand for the special token of that name; None:
            those of every special token that the vocabulary has.
    """

    name: str
    data: bytes = field(repr=False)
    stock: Outcome | None = None
    fallback: Outcome | None = None
    note: str = ""
    special_tokens: tuple[str, ...] | None = ()

    def split(self, names: Iterable[str]) -> list[tuple[bytes, bool]]:
        """Return the text in pieces, and of each whether it is one of the names."""
        longest_first = sorted((n.encode() for n in names if n), key=len, reverse=True)
        if not longest_first:
            return [(self.data, False)]
        pieces = re.split(b"(" + b"|".join(map(re.escape, longest_first)) + b")", self.data)
        return [(piece, at % 2 == 1) for at, piece in enumerate(pieces) if piece]


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

    def explain(self, error: GrammarError) -> str:
        """Return llguidance's words about this grammar, with the line numbers of its file."""
        words = str(error)
        if self.kind == "json_schema":  # the Lark around it is nobody's file
            return _EXCERPT.sub("", re.sub(r"^(at )?\d+\(\d+\): ", "", words))
        if _DECLARATION.search(self.source):
            return words
        words = re.sub(r"^(at )?(\d+)\(", lambda m: f"{m[1] or ''}{int(m[2]) - 1}(", words)
        return _EXCERPT.sub(
            lambda m: f"{m[1]}{int(m[2]) - 1}{m[3]}" if int(m[2]) > 1 else "", words
        )

    @cached_property
    def digest(self) -> str:
        """Return a hash of all that is measured: kind, options, grammar and texts."""
        h = hashlib.sha256()
        for part in (self.kind, json.dumps(dict(self.options), sort_keys=True), self.source):
            h.update(part.encode() + b"\0")
        for text in self.texts:
            h.update(text.name.encode() + b"\0" + text.data + b"\0")
            if text.special_tokens != ():
                h.update(json.dumps(text.special_tokens).encode() + b"\0")
        return h.hexdigest()[:16]


# A grammar's own options. A line of Lark that begins so is nothing else: neither its strings nor
# those of JSON go over lines.
_DECLARATION = re.compile(r"^[ \t]*%llguidance\b[ \t]*", re.MULTILINE)
# Lines of the grammar that llguidance quotes in a message, each with its number.
_EXCERPT = re.compile(r"^( *)(\d+)( \| .*\n?)", re.MULTILINE)


def with_options(grammar: str, options: Mapping[str, Any]) -> str:
    """Return a Lark grammar with llguidance's options: in its own line of them, else before it."""
    declared = f"%llguidance {json.dumps(dict(options))}"
    found = _DECLARATION.search(grammar)
    if found is None:
        return f"{declared}\n{grammar}"
    _, end = _JSON.raw_decode(grammar, found.end())
    lines = grammar.count("\n", found.start(), end)  # so that all after it keep their numbers
    return grammar[: found.start()] + declared + "\n" * lines + grammar[end:]


def _declared_options(grammar: str, path: Path) -> dict[str, Any]:
    """Return the options of a grammar's own %llguidance line.

    Raises:
        CaseError: it holds no JSON object, or there are two.
    """
    found = list(_DECLARATION.finditer(grammar))
    if not found:
        return {}
    line = grammar.count("\n", 0, found[-1].start()) + 1
    if len(found) > 1:
        raise CaseError(f"{path}: line {line}: a second %llguidance line; join them")
    try:
        options, _ = _JSON.raw_decode(grammar, found[0].end())
    except (ValueError, RecursionError) as error:
        raise CaseError(f"{path}: line {line}: %llguidance needs a JSON object: {error}") from None
    if not isinstance(options, dict):
        raise CaseError(f"{path}: line {line}: %llguidance needs a JSON object")
    return options


def _options(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return options as llguidance can be given them.

    Raises:
        CaseError: one is no JSON (a date, NaN), or is a variant's own.
    """
    try:
        json.dumps(table, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise CaseError(
            f"{where}: options become JSON, which cannot hold this: {files.one_line(error)}"
        ) from None
    for name in FALLBACK_OPTIONS:
        if name in table:
            raise CaseError(f"{where}: leave the option {name} out: a variant turns it on")
    return dict(table)


# ---- case.toml, as it is written ---------------------------------------------------------------

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
    source = _read(_inside(folder, path.name, str(folder)))
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
        options=_options(table.options, str(folder / _CASE_FILE)),
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
    source = _read(grammar)
    own: dict[str, Text] = {}
    for path in texts:
        name = _shown(path)
        if name in own:
            raise CaseError(f"{name}: the text is given twice")
        data = _read(path).encode()
        own[name] = Text(name, data, special_tokens=None if special_tokens else ())
    return _case(
        _shown(grammar.stem),
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
        _parse_json(source, str(path))
    else:
        own = _options(_declared_options(source, path), str(path))
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


# ---- MaskBench ---------------------------------------------------------------------------------


class _MaskBenchTest(Struct):
    data: Any
    valid: bool


class _MaskBenchFile(Struct):
    schema: Any
    tests: list[_MaskBenchTest] = []
    description: Any = ""


def load_maskbench(folder: Path, text_format: TextFormat = "maskbench") -> list[Case]:
    """Read every MaskBench file in a folder as a case, in order of name.

    A MaskBench file is a JSON object with ``schema`` and ``tests``, each test with ``data`` and
    ``valid``; a test's text is its data as JSON.

    Args:
        folder: where the files are.
        text_format: how the texts are written: ``maskbench``, on one line with ``", "`` and
            ``": "``, as MaskBench's own runner does; ``compact``, without spaces; ``indent2``. In
            another than MaskBench's a case is another one, with the format in its name.

    Raises:
        CaseError: the folder has no such file, or one is malformed.
    """
    found = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if not found:
        raise CaseError(f"{folder}: no MaskBench files (*.json) there")
    return [_maskbench_case(path, text_format) for path in found]


def _maskbench_case(path: Path, text_format: TextFormat) -> Case:
    content = files.convert(
        _parse_json(_read(path), str(path)), _MaskBenchFile, str(path), error=CaseError
    )
    texts = []
    for number, test in enumerate(content.tests):
        # Only validity by the schema is known, not the byte where an invalid text must fail.
        outcome = Outcome() if test.valid else REJECTED
        texts.append(
            Text(
                name=f"{'valid' if test.valid else 'invalid'}-{number}",
                data=_dump(test.data, text_format, f"{path}: test {number}").encode(),
                stock=outcome,
                fallback=outcome,
            )
        )
    name = _shown(path.stem)
    return Case(
        name=name if text_format == "maskbench" else f"{name}+{text_format}",
        kind="json_schema",
        source=_dump(content.schema, "indent2", f"{path}: schema"),
        path=path,
        reason=str(content.description),
        texts=tuple(texts),
        tags=("maskbench",),
    )


def _dump(content: Any, text_format: TextFormat, where: str) -> str:
    """Write JSON in a format.

    Raises:
        CaseError: it holds what JSON or UTF-8 has not, or nests too deeply.
    """
    try:
        text = json.dumps(
            content,
            indent=2 if text_format == "indent2" else None,
            separators=(",", ":") if text_format == "compact" else None,
            ensure_ascii=False,
            allow_nan=False,
        )
        text.encode()
    except UnicodeEncodeError as error:
        raise CaseError(f"{where} is not UTF-8 ({error.reason})") from None
    except RecursionError:
        raise CaseError(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise CaseError(f"{where}: {error}") from None
    return text


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
        data = _read(_inside(folder, entry.file, where)).encode()
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


def _read(path: Path, limit: int = LIMIT) -> str:
    return files.read_text(path, limit=limit, error=CaseError)


def _shown(path: Path | str) -> str:
    """Return a path as text; a byte of it that is not UTF-8 is shown as an escape."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


def _parse_json(source: str, where: str) -> Any:
    """Parse JSON as MaskBench's runner does, with numbers of any length.

    Raises:
        CaseError: it is not JSON.
    """
    try:
        return _JSON.decode(source)
    except RecursionError:
        raise CaseError(f"{where}: nested too deeply") from None
    except ValueError as error:
        raise CaseError(f"{where}: {files.one_line(error)}") from None
