"""The sources of a case: files below its folder, and strict JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NoReturn

from llgbench import files
from llgbench.errors import CaseError

# Of a grammar, and of all texts of a case together. The largest case here has 2 MiB.
LIMIT = 64 << 20


def read(path: Path, limit: int = LIMIT) -> str:
    """Return the text of a regular file of at most ``limit`` bytes.

    Raises:
        CaseError: it cannot be read, is larger, or is not UTF-8.
    """
    return files.read_text(path, limit=limit, error=CaseError)


def shown(path: Path | str) -> str:
    """Return a path as text; a byte of it that is not UTF-8 is shown as an escape."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


JSON = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_json(source: str, where: str) -> Any:
    """Parse JSON as MaskBench's runner does, with numbers of any length.

    Raises:
        CaseError: it is not JSON.
    """
    try:
        return JSON.decode(source)
    except RecursionError:
        raise CaseError(f"{where}: nested too deeply") from None
    except ValueError as error:
        raise CaseError(f"{where}: {files.one_line(error)}") from None
