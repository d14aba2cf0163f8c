"""The greedy lexeme fallback's cost on one page: what is asked of it, and what was measured.

Pure: plain rows come in, as ``llgbench overhead --count --json`` writes them, and go out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from llgbench import files
from llgbench.errors import RecordError

TITLE = "The greedy lexeme fallback"

OFF_LIMIT = 1.002
ON_LIMIT = 1.02
PENDING_LIMIT = 1.5
CURVE_LIMIT = 1.2
# Flat but for the kilobyte or so by which blocks are rounded; the stack itself is 40 bytes a byte.
MEMORY_LIMIT = 0.1
# The curve's two ends; between them what a step costs must not grow.
SHORT, LONG = 256, 16384

_FILE = Path("records") / "overhead.json"
_SCHEMA = 1

Row = dict[str, Any]
Cells = list[dict[str, str | float | bool | None]]
Found = Mapping[str, Sequence[Mapping[str, Any]]]


def summary(found: Found) -> list[Row]:
    """Return a row a requirement: ``what``, ``limit``, ``measured`` (the worst), ``at``, ``met``.

    Args:
        found: rows by table: ``ratios``, ``pending``, ``checkpoints``, ``memory``. What needs a
            length that was not measured has no row.
    """
    rows: list[Row] = []
    ratios, pending = found.get("ratios", ()), found.get("pending", ())
    for side, title, limit in (
        ("off", "off / stock", OFF_LIMIT), ("on", "on / off, no boundary pending", ON_LIMIT),
    ):  # fmt: skip
        for part, words in (("mask", "mask"), ("consume", "token"), ("step", "mask + token")):
            what = f"{title}: {words}, instructions"
            rows += _worst(what, limit, ratios, f"{side}_{part}", ("case", "kind"))
    for measure in ("instructions", "time"):
        what = f"mask with a boundary pending / the costlier reading's alone, {measure}"
        rows += _worst(what, PENDING_LIMIT, pending, f"{measure} / costlier", ("state",))
    kept = [row for row in found.get("checkpoints", ()) if row["strategy"] == "shadow"]
    ends = _ends(kept, "costliest")
    if ends is not None:
        what = f"costliest step of a checkpoint, n = {LONG} / {SHORT}, instructions"
        rows.append(_row(what, CURVE_LIMIT, ends[1] / ends[0], ""))
    ends = _ends(found.get("memory", ()), "beyond")
    if ends is not None:
        what = "heap beyond the option off, bytes per byte of n"
        rows.append(_row(what, MEMORY_LIMIT, (ends[1] - ends[0]) / (LONG - SHORT), ""))
    return rows


def _worst(
    what: str,
    limit: float,
    rows: Sequence[Mapping[str, Any]],
    key: str,
    named: Sequence[str],
) -> list[Row]:
    """Return a row of the largest value under ``key``; none where there are no rows."""
    if not rows:
        return []
    worst = max(rows, key=lambda row: row[key])
    return [_row(what, limit, worst[key], ", ".join(str(worst[name]) for name in named))]


def _ends(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[float, float] | None:
    """Return the values at the curve's two ends, None where one was not measured."""
    by_length = {row["n"]: float(row[key]) for row in rows}
    return (by_length[SHORT], by_length[LONG]) if {SHORT, LONG} <= by_length.keys() else None


def _row(what: str, limit: float, measured: float, at: str) -> Row:
    return {
        "what": what,
        "limit": limit,
        "measured": round(measured, 4),
        "at": at,
        "met": measured <= limit,
    }


# ---- kept for the report -------------------------------------------------------------------------


def path_in(results: Path) -> Path:
    """Return the file of a results folder."""
    return results / _FILE


def save(results: Path, found: Mapping[str, Any]) -> Path:
    """Keep what was measured under a results folder, in place of what was there; return the file.

    Raises:
        RecordError: the folder cannot be written.
    """
    text = json.dumps({"schema": _SCHEMA, **found}, indent=1)
    path = path_in(results)
    files.write(path, text, error=RecordError)
    return path


class Kept(TypedDict):
    """What :func:`save` keeps; a row's cells are of no fixed names."""

    schema: int
    vocab: NotRequired[str]
    provenance: NotRequired[dict[str, Any]]
    summary: NotRequired[Cells]
    ratios: NotRequired[Cells]
    pending: NotRequired[Cells]
    checkpoints: NotRequired[Cells]
    memory: NotRequired[Cells]


def load(results: Path) -> Mapping[str, Any] | None:
    """Return what :func:`save` kept, None where there is nothing.

    Raises:
        RecordError: the file is damaged or of another version.
    """
    path = path_in(results)
    if not path.exists():
        return None
    found = files.read_json(path, Kept, error=RecordError)
    if found["schema"] != _SCHEMA:
        raise RecordError(f"{path}: of another version; run: llgbench overhead --count")
    return found
