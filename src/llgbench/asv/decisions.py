"""Decisions that an alert is accepted, with their reasons, in a file under version control."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from llgbench import files
from llgbench.asv.alert import Alert, Rise
from llgbench.errors import FileError, InputError, RecordError


class Decision(Rise, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An accepted alert: its series, where it rose and how far, and why that is right.

    A rise of the same series that touches the same commits and goes no higher is accepted, so that
    commits measured later in between change nothing. What goes higher, or comes later, is new.

    Attributes:
        reason: why it is accepted.
        date: of the decision, ISO.
    """

    reason: str
    date: str


class _Decisions(msgspec.Struct, forbid_unknown_fields=True):
    accepted: list[Decision]


def read(path: Path) -> tuple[Decision, ...]:
    """Return the decisions of a file; none where there is no file.

    Raises:
        RecordError: the file is damaged.
    """
    if not path.exists():
        return ()
    try:
        return tuple(files.read_json(path, _Decisions).accepted)
    except FileError as error:
        raise RecordError(
            f"{error}; not a list of accepted alerts: restore it from history, or remove it and "
            "accept again"
        ) from None


def accept(path: Path, alerts: Iterable[Alert], reason: str, now: datetime | None = None) -> int:
    """Record that the new ones among some alerts are accepted, and why; return how many.

    Raises:
        InputError: the reason is empty.
        RecordError: the file is damaged or cannot be written.
    """
    if not reason.strip():
        raise InputError("--accept needs a reason that a reader of the history understands")
    date = f"{now or datetime.now(UTC):%Y-%m-%d}"
    fresh = [
        Decision(**alert.rise, reason=files.one_line(reason), date=date)
        for alert in alerts
        if alert.state == "new"
    ]
    if fresh:
        table = msgspec.to_builtins(_Decisions([*read(path), *fresh]))
        encoded = msgspec.json.format(msgspec.json.encode(table), indent=2) + b"\n"
        files.write(path, encoded, error=RecordError)
    return len(fresh)
