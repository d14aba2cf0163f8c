"""ASV's result files, read as plain values; asv itself is not imported."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from llgbench.errors import RecordError

# The version of ASV's result files that is read here.
_VERSION = 2


@dataclass(frozen=True)
class AsvValue:
    """One benchmark with one choice of parameters.

    Attributes:
        machine: ASV's name for it.
        commit: what was measured, the full hash.
        benchmark: such as ``masks.Trace.track_p99``.
        parameters: as text, in the benchmark's order.
        value: in the unit; None where it has none.
        unit: such as ``seconds``; empty where ASV knows none.
        missing: ``n/a`` where the benchmark does not apply, ``failed``, or empty.
    """

    machine: str
    commit: str
    benchmark: str
    parameters: tuple[str, ...]
    value: float | None
    unit: str
    missing: str


def read_asv(folder: Path) -> list[AsvValue]:
    """Return the values of the newest commit that each machine has results of.

    Args:
        folder: ASV's ``results_dir``; what else lies there is passed over.

    Raises:
        RecordError: a result file is damaged, or of another version of ASV.
    """
    known = benchmarks(folder)
    found: list[AsvValue] = []
    for machine in sorted(path.parent for path in folder.glob("*/machine.json")):
        files = [
            (path, _load_results(path)) for path in sorted(machine.glob("*.json"))
            if path.name != "machine.json"
        ]  # fmt: skip
        if not files:
            continue
        newest = max((d.get("date", 0), d["commit_hash"]) for _, d in files)[1]
        for path, content in files:
            if content.get("commit_hash") == newest:
                try:
                    found += _values(machine.name, content, known)
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise RecordError(f"{path}: no result file of ASV ({error!r})") from None
    return found


def benchmarks(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what ASV knows of each benchmark, by name; nothing where it has no index.

    Raises:
        RecordError: the index is damaged, or of another version of ASV.
    """
    index = folder / "benchmarks.json"
    table = _load(index) if index.is_file() else {}
    return {name: about for name, about in table.items() if isinstance(about, dict)}


def _values(
    machine: str, content: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]
) -> Iterator[AsvValue]:
    columns: Sequence[str] = content["result_columns"]
    for name, packed in sorted(content["results"].items()):
        row = dict(zip(columns, packed, strict=False))
        unit = str(known.get(name, {}).get("unit", ""))
        choices = list(product(*(row.get("params") or [])))
        results = row.get("result")
        if results is None:
            results = [None] * len(choices)
        for choice, value in zip(choices, results, strict=True):
            yield AsvValue(
                machine,
                str(content["commit_hash"]),
                name,
                tuple(_plain(text) for text in choice),
                _finite(value),
                unit,
                # ASV writes null of what failed, and NaN of what its setup skipped.
                "failed" if value is None else "n/a" if _finite(value) is None else "",
            )


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _plain(text: str) -> str:
    """Return a parameter without the quotes of its repr."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, str) else text


def _load(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise RecordError(f"{path}: no JSON; remove it and run asv again") from None
    if not isinstance(content, dict):
        raise RecordError(f"{path}: no result file of ASV")
    if path.name != "machine.json" and content.get("version") != _VERSION:
        raise RecordError(
            f"{path}: version {content.get('version')} of ASV's files, this llgbench reads "
            f"{_VERSION}; run: asv update"
        )
    return content


def _load_results(path: Path) -> dict[str, Any]:
    content = _load(path)
    if not isinstance(content.get("commit_hash"), str):
        raise RecordError(f"{path}: no result file of ASV (it names no commit)")
    return content
