"""MaskBench: files of public JSON schemas with instances, read as cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct

from llgbench import files
from llgbench.errors import CaseError
from llgbench.inputs.case import REJECTED, Case, Outcome, Text
from llgbench.inputs.case_text import parse_json, read, shown

TextFormat = Literal["maskbench", "compact", "indent2"]
TEXT_FORMATS: tuple[TextFormat, ...] = get_args(TextFormat)

_ALL = slice(None)


# ---- MaskBench ---------------------------------------------------------------------------------


class _MaskBenchTest(Struct):
    data: Any
    valid: bool


class _MaskBenchFile(Struct):
    schema: Any
    tests: list[_MaskBenchTest] = []
    description: Any = ""


def load_maskbench(
    folder: Path, text_format: TextFormat = "maskbench", part: slice = _ALL
) -> list[Case]:
    """Read every MaskBench file in a folder as a case, in order of name.

    A MaskBench file is a JSON object with ``schema`` and ``tests``, each test with ``data`` and
    ``valid``; a test's text is its data as JSON.

    Args:
        folder: where the files are.
        text_format: how the texts are written: ``maskbench``, on one line with ``", "`` and
            ``": "``, as MaskBench's own runner does; ``compact``, without spaces; ``indent2``. In
            another than MaskBench's a case is another one, with the format in its name.
        part: of the files, which; only these are read.

    Raises:
        CaseError: the folder has no such file, or one is malformed.
    """
    found = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if not found:
        raise CaseError(f"{folder}: no MaskBench files (*.json) there")
    return [_maskbench_case(path, text_format) for path in found[part]]


def _maskbench_case(path: Path, text_format: TextFormat) -> Case:
    content = files.convert(
        parse_json(read(path), str(path)), _MaskBenchFile, str(path), error=CaseError
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
    name = shown(path.stem)
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
