"""Records: raw samples with their provenance, one file per run, as JSON lines.

The first line says what the file is and where it was measured; each further line is one
configuration; the last says that the run ended. A line is handed to the system before the next
configuration begins, so a run that is killed leaves whole lines, and the next run with the same
fingerprint continues in the same file. docs/method.md describes the fields.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from llgbench import files
from llgbench.errors import RecordError
from llgbench.inputs.configuration import Configuration
from llgbench.records import lines as record_lines
from llgbench.records.entry import MAX_VALUES, Entry, from_plain, to_plain

SCHEMA = 1
_FORMAT = "llgbench"

# Far above any run; what claims to hold more is damaged, or made to exhaust memory.
_MAX_BYTES = 1 << 30


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


class Writer:
    """Appends a run's configurations to its record; a context manager.

    A run that stored nothing leaves nothing, nor the folders that were made for it.

    Attributes:
        path: the file.
        entries: what an earlier, killed run had written of the same record.
    """

    def __init__(self, folder: Path, mark: str, provenance: Mapping[str, Any]) -> None:
        """Begin a record, or continue the one that a killed run of the same mark left.

        Args:
            folder: usually results/records.
            mark: the run's :func:`fingerprint`.
            provenance: stored in the header.

        Raises:
            RecordError: the folder cannot be written, or a run of the same mark is under way.
        """
        self.entries: tuple[Entry, ...] = ()
        self._lines = 0
        self._made: list[Path] = []
        try:
            self._made = [p for p in (folder, *folder.parents) if not p.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = _unfinished(folder, mark)
            if unfinished is not None:
                self.path, self._file = unfinished, _open_locked(unfinished, os.O_WRONLY)
                self._go_on()
                return
            now = datetime.now(UTC)
            self.path, self._file = _open_new(folder, f"{now:%Y%m%dT%H%M%S}-{mark}")
        except OSError as error:
            self._remove_folders()
            raise RecordError(f"cannot write results in {folder}: {error.strerror}") from None
        header = {
            "format": _FORMAT,
            "schema": SCHEMA,
            "created": now.isoformat(timespec="seconds"),
            "fingerprint": mark,
            "provenance": dict(provenance),
        }
        try:
            self._put(header)
        except RecordError:
            self._close()
            raise

    def _go_on(self) -> None:
        try:
            record = read(self.path)
            content = files.read(self.path, limit=_MAX_BYTES, error=RecordError)
            os.ftruncate(self._file, content.rfind(b"\n") + 1)  # an unfinished last line
            os.lseek(self._file, 0, os.SEEK_END)
        except BaseException:
            os.close(self._file)
            raise
        self._lines = content.count(b"\n")
        self.entries = record.entries

    @property
    def empty(self) -> bool:
        """Whether nothing is stored yet, here or beside it; such a record does not stay."""
        beside = self.path.parent.glob(f"{glob.escape(self.path.stem)}.*")
        return self._lines < 2 and all(path == self.path for path in beside)

    def add(self, entry: Entry) -> None:
        """Append one configuration, and hand it to the system.

        Raises:
            RecordError: the disk refuses.
        """
        self._put(to_plain(entry))

    def end(self) -> None:
        """Mark the run as complete."""
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        self._put({"end": ended, "lines": self._lines})

    def discard(self) -> None:
        """Remove the record, and the folders that were made for it: nothing was measured."""
        with suppress(OSError):
            self.path.unlink()
        self._remove_folders()

    def _put(self, line: Mapping[str, Any]) -> None:
        """Write a line whole, or nothing of it."""
        text = json.dumps(line, separators=(",", ":"), allow_nan=False)
        left = memoryview(f"{text}\n".encode())
        before = os.lseek(self._file, 0, os.SEEK_END)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, before)
            raise RecordError(f"cannot write {self.path}: {error.strerror}") from None
        self._lines += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self.empty:
            self.discard()
        os.close(self._file)

    def _remove_folders(self) -> None:
        for folder in self._made:
            with suppress(OSError):  # it was not made, or something else is in it by now
                folder.rmdir()


def read(path: Path) -> Record:
    """Read a record.

    Raises:
        RecordError: the file is unreadable, is no record, is of a newer schema, or is damaged
            anywhere but in an unfinished last line.
    """
    *lines, rest = files.read_text(path, limit=_MAX_BYTES, error=RecordError).split("\n")
    if not lines and not rest:
        raise RecordError(f"{path}: empty; the run was killed before it had measured anything")
    where = f"{path}: line 1"
    header = record_lines.parse(lines[0] if lines else rest, where)
    if header.get("format") != _FORMAT:
        raise RecordError(f"{path}: no llgbench record")
    if header.get("schema") != SCHEMA:
        raise RecordError(
            f"{path}: schema {header.get('schema')}, this llgbench reads {SCHEMA}; "
            "use the llgbench that wrote it, or a newer one"
        )
    record_lines.require(header, record_lines.Header, where)
    entries: dict[Configuration | int, Entry] = {}
    complete, room = False, MAX_VALUES
    for number, line in enumerate(lines[1:], start=2):
        where = f"{path}: line {number}"
        content = record_lines.parse(line, where)
        if complete:
            raise RecordError(f"{where} stands behind the end; the record is damaged")
        if "end" in content:
            record_lines.require(content, record_lines.End, where)
            if content.get("lines", number - 1) != number - 1:
                raise RecordError(
                    f"{path}: {number - 1} lines are left of {content['lines']}; "
                    "the record is damaged"
                )
            complete = True
            continue
        entry = from_plain(content, where, room)
        room -= sum(len(array) for arrays in entry.samples.values() for array in arrays)
        # Other records than those of runs have several entries of a configuration.
        key = number if entry.kind else entry.configuration
        _require_reason(entries.pop(key, None), entry, where)
        entries[key] = entry
    return Record(path, header, tuple(entries.values()), complete, torn=bool(rest))


def read_all(folder: Path) -> Iterator[Record]:
    """Read every record of a folder, oldest first; runs that have stored nothing are no records."""
    for path in sorted(folder.glob("*.jsonl"), key=_age):
        if _whole_lines(path):
            yield read(path)


def latest(folder: Path) -> Path | None:
    """Return the newest record of a folder that holds a configuration, None where none does."""
    for path in sorted(folder.glob("*.jsonl"), key=_age, reverse=True):
        if _whole_lines(path) > 1:  # a run that has just begun is no result yet
            return path
    return None


def _whole_lines(path: Path) -> int:
    return files.read(path, limit=_MAX_BYTES, error=RecordError).count(b"\n")


def _require_reason(earlier: Entry | None, later: Entry, where: str) -> None:
    """Refuse what stands there twice, but for what was measured again since its inputs changed.

    Raises:
        RecordError: nothing changed, so that it could not be said which of the two counts.
    """
    if earlier is None or earlier.unavailable is not None or later.unavailable is not None:
        return
    if earlier.facts.get("inputs") == later.facts.get("inputs"):
        raise RecordError(f"{where} is damaged: {later.configuration} is there already")


def _unfinished(folder: Path, mark: str) -> Path | None:
    """Return the newest record of a mark where its run did not come to its end."""
    for path in sorted(folder.glob(f"*-{mark}*.jsonl"), key=_age, reverse=True):
        if not _whole_lines(path):
            continue  # killed before it had written its first line: there is nothing to continue
        return None if read(path).complete else path
    return None


def _age(path: Path) -> str:
    # Without the suffix: "…-2" is younger than "…", while "…-2.jsonl" sorts before "….jsonl".
    return path.stem


def _open_new(folder: Path, stem: str) -> tuple[Path, int]:
    """Make and lock a record of a name that is not there yet; return it and its descriptor."""
    for number in itertools.count(1):
        path = folder / (f"{stem}.jsonl" if number == 1 else f"{stem}-{number}.jsonl")
        with suppress(FileExistsError):
            return path, _open_locked(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    raise AssertionError  # for mypy: the numbers do not end


def _open_locked(path: Path, flags: int) -> int:
    """Open a record for this process alone, as long as it is open.

    Raises:
        RecordError: another process has it open.
    """
    file = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise RecordError(f"{path}: the same run is under way in another process") from None
    except OSError:
        pass  # some network file systems have no locks
    return file
