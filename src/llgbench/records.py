"""Records: raw samples with their provenance, one file a run, as JSON lines.

The first line says what the file is and where it was measured; each further line is one
configuration; the last says that the run ended. A line is handed to the system before the next
configuration begins, so a run that is killed leaves whole lines, and the next run with the same
fingerprint goes on in the same file. docs/method.md describes the fields.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TextIO

import numpy as np
import numpy.typing as npt

from llgbench.configuration import Configuration
from llgbench.errors import RecordError

SCHEMA = 1
_FORMAT = "llgbench"

Arrays = list[npt.NDArray[np.uint64]]


@dataclass(frozen=True)
class Entry:
    """One configuration of a record.

    Attributes:
        configuration: what was measured.
        engine: name, release and sha256 of the engine it ran on; empty where unavailable.
        verdict: as Verdict.to_json writes it; empty where unavailable.
        samples: raw times by name, one array a replay, nanoseconds, uint64.
        facts: what does not depend on the clock, by name; where unavailable, the case's alone.
        unavailable: why it was not measured; None where it was.
    """

    configuration: Configuration
    engine: Mapping[str, str] = field(default_factory=dict)
    verdict: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, Arrays] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    unavailable: str | None = None


@dataclass(frozen=True)
class Record:
    """A record file as read.

    Attributes:
        path: the file.
        header: its first line.
        entries: in the order they were measured.
        complete: whether the run came to its end.
        torn: whether an unfinished last line was dropped.
    """

    path: Path
    header: Mapping[str, Any]
    entries: tuple[Entry, ...]
    complete: bool
    torn: bool

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where and with what the run was measured."""
        found: Mapping[str, Any] = self.header["provenance"]
        return found


def fingerprint(*parts: Any) -> str:
    """Return a hash of everything a run's numbers depend on, given as plain data."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def by_round(entry: Entry, arrays: Sequence[npt.NDArray[np.uint64]]) -> list[Arrays]:
    """Return one of an entry's samples round by round; in one piece where rounds are unequal.

    The runner goes round by round, and replays every text equally often in each, so every round
    is a measurement of the same steps.
    """
    texts = len(entry.facts.get("texts", []))
    cold = len(entry.samples.get("cold_mask", []))
    if not texts or not arrays or cold % texts or len(arrays) % cold:
        return [list(arrays)]
    size = len(arrays) // (cold // texts)
    return [list(arrays[start : start + size]) for start in range(0, len(arrays), size)]


class Writer:
    """Appends a run's configurations to its record; a context manager.

    Attributes:
        path: the file.
        done: the configurations that an earlier, killed run had measured already.
    """

    def __init__(self, folder: Path, mark: str, provenance: Mapping[str, Any]) -> None:
        """Begin a record, or go on with the one that a killed run of the same mark left.

        Args:
            folder: usually results/records.
            mark: the run's :func:`fingerprint`.
            provenance: stored in the header.

        Raises:
            RecordError: the folder cannot be written, or a run of the same mark is under way.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = _unfinished(folder, mark)
            self.done: frozenset[Configuration] = frozenset()
            if unfinished is not None:
                self.path = unfinished
                self._file = _open_locked(self.path, "a")
                _cut_torn_line(self._file, self.path)
                self.done = frozenset(entry.configuration for entry in read(self.path).entries)
            else:
                now = datetime.now(UTC)
                self.path = _new_path(folder, now, mark)
                self._file = _open_locked(self.path, "x")
                self._put(
                    {
                        "format": _FORMAT,
                        "schema": SCHEMA,
                        "created": now.isoformat(timespec="seconds"),
                        "fingerprint": mark,
                        "provenance": dict(provenance),
                    }
                )
        except OSError as error:
            raise RecordError(f"cannot write results in {folder}: {error.strerror}") from None

    def add(self, entry: Entry) -> None:
        """Append one configuration and flush it.

        Raises:
            RecordError: the disk refuses.
        """
        c = entry.configuration
        line: dict[str, Any] = {
            "configuration": [c.case, c.vocab, c.variant, c.engine],
        }
        if entry.unavailable is not None:
            line["unavailable"] = entry.unavailable
            if entry.facts:
                line["facts"] = dict(entry.facts)
        else:
            line["engine"] = dict(entry.engine)
            line["verdict"] = dict(entry.verdict)
            line["facts"] = dict(entry.facts)
            line["samples"] = {name: pack(arrays) for name, arrays in entry.samples.items()}
        self._put(line)

    def end(self) -> None:
        """Mark the run as complete."""
        self._put({"end": datetime.now(UTC).isoformat(timespec="seconds")})

    def _put(self, line: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError as error:
            raise RecordError(f"cannot write {self.path}: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def read(path: Path) -> Record:
    """Read a record.

    Raises:
        RecordError: the file is unreadable, is no record, is of a newer schema, or is damaged
            anywhere but in an unfinished last line.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RecordError(f"{path}: no record (not UTF-8)") from None
    *lines, rest = text.split("\n")
    header = _parse(path, 1, lines[0] if lines else rest)
    if header.get("format") != _FORMAT:
        raise RecordError(f"{path}: no llgbench record")
    if header.get("schema") != SCHEMA:
        raise RecordError(
            f"{path}: schema {header.get('schema')}, this llgbench reads {SCHEMA}; "
            "use the llgbench that wrote it, or a newer one"
        )
    entries, complete = [], False
    for number, line in enumerate(lines[1:], start=2):
        content = _parse(path, number, line)
        if "end" in content:
            complete = True
            continue
        try:
            entries.append(_entry(content))
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise RecordError(f"{path}: line {number} is damaged ({error!r})") from None
    if not isinstance(header.get("provenance"), dict):
        raise RecordError(f"{path}: line 1 has no provenance; the record is damaged")
    return Record(path, header, tuple(entries), complete, torn=bool(rest))


def read_all(folder: Path) -> Iterator[Record]:
    """Read every record of a folder, oldest first; a run that a full disk ended at once is none."""
    for path in sorted(folder.glob("*.jsonl"), key=_age):
        if path.stat().st_size:
            yield read(path)


def latest(folder: Path) -> Path | None:
    """Return the newest record of a folder that holds a configuration, None where none does."""
    for path in sorted(folder.glob("*.jsonl"), key=_age, reverse=True):
        if path.read_bytes().count(b"\n") > 1:  # a run that has just begun is no result yet
            return path
    return None


def pack(arrays: Sequence[npt.NDArray[np.uint64]]) -> dict[str, Any]:
    """Return arrays as plain data: their lengths, and all values zlib'd in base64.

    The values are little-endian uint64, untruncated.
    """
    joined = np.concatenate([*arrays, np.empty(0, np.uint64)]).astype("<u8")
    # Storing the bytes plane by plane puts the many zero bytes together.
    planes = joined.view(np.uint8).reshape(-1, 8).T.tobytes()
    return {
        "lengths": [len(a) for a in arrays],
        "data": base64.b64encode(zlib.compress(planes)).decode(),
    }


def unpack(packed: Mapping[str, Any]) -> Arrays:
    """Return what :func:`pack` took."""
    lengths = packed["lengths"]
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.uint8)
    joined = planes.reshape(8, -1).T.copy().view("<u8").ravel().astype(np.uint64)
    if len(joined) != sum(lengths):
        raise ValueError("lengths and data disagree")
    return list(np.split(joined, np.cumsum(lengths)[:-1])) if lengths else []


def _entry(content: Mapping[str, Any]) -> Entry:
    configuration = Configuration(*content["configuration"])
    if "unavailable" in content:
        return Entry(
            configuration, facts=content.get("facts", {}), unavailable=content["unavailable"]
        )
    return Entry(
        configuration,
        engine=content["engine"],
        verdict=content["verdict"],
        facts=content["facts"],
        samples={name: unpack(packed) for name, packed in content["samples"].items()},
    )


def _parse(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except ValueError:
        raise RecordError(f"{path}: line {number} is no JSON; the record is damaged") from None
    if not isinstance(content, dict):
        raise RecordError(f"{path}: line {number} is no JSON object; the record is damaged")
    return content


def _unfinished(folder: Path, mark: str) -> Path | None:
    """Return the newest record of a mark where its run did not come to its end."""
    for path in sorted(folder.glob(f"*-{mark}*.jsonl"), key=_age, reverse=True):
        if b"\n" not in path.read_bytes():
            continue  # killed before it had written its first line: there is nothing to go on with
        return None if read(path).complete else path
    return None


def _age(path: Path) -> str:
    # Without the suffix: "…-2" is younger than "…", while "…-2.jsonl" sorts before "….jsonl".
    return path.stem


def _new_path(folder: Path, now: datetime, mark: str) -> Path:
    stem = f"{now:%Y%m%dT%H%M%S}-{mark}"
    path = folder / f"{stem}.jsonl"
    number = 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}.jsonl"
    return path


def _open_locked(path: Path, mode: Literal["a", "x"]) -> TextIO:
    """Open a record for this process alone, as long as it is open.

    Raises:
        RecordError: another process has it open.
    """
    file = path.open(mode)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise RecordError(f"{path}: the same run is under way in another process") from None
    except OSError:
        pass  # some network file systems have no locks
    return file


def _cut_torn_line(file: TextIO, path: Path) -> None:
    """Drop an unfinished last line of a record that is open."""
    content = path.read_bytes()
    file.truncate(content.rfind(b"\n") + 1)
