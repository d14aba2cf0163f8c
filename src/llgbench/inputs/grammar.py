"""The ``%llguidance`` line of a Lark grammar: its options, read and written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llgbench import files
from llgbench.errors import CaseError
from llgbench.inputs.case_text import JSON
from llgbench.inputs.variant import FALLBACK_OPTIONS

# A grammar's own options. A line of Lark that begins so is nothing else: neither its strings nor
# those of JSON go over lines.
DECLARATION = re.compile(r"^[ \t]*%llguidance\b[ \t]*", re.MULTILINE)


def with_options(grammar: str, options: Mapping[str, Any]) -> str:
    """Return a Lark grammar with llguidance's options: in its own line of them, else before it."""
    declared = f"%llguidance {json.dumps(dict(options))}"
    found = DECLARATION.search(grammar)
    if found is None:
        return f"{declared}\n{grammar}"
    _, end = JSON.raw_decode(grammar, found.end())
    lines = grammar.count("\n", found.start(), end)  # so that all after it keep their numbers
    return grammar[: found.start()] + declared + "\n" * lines + grammar[end:]


def declared_options(grammar: str, path: Path) -> dict[str, Any]:
    """Return the options of a grammar's own %llguidance line.

    Raises:
        CaseError: it holds no JSON object, or there are two.
    """
    found = list(DECLARATION.finditer(grammar))
    if not found:
        return {}
    line = grammar.count("\n", 0, found[-1].start()) + 1
    if len(found) > 1:
        raise CaseError(f"{path}: line {line}: a second %llguidance line; join them")
    try:
        options, _ = JSON.raw_decode(grammar, found[0].end())
    except (ValueError, RecursionError) as error:
        raise CaseError(f"{path}: line {line}: %llguidance needs a JSON object: {error}") from None
    if not isinstance(options, dict):
        raise CaseError(f"{path}: line {line}: %llguidance needs a JSON object")
    return options


def options_of(table: Mapping[str, Any], where: str) -> dict[str, Any]:
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
