"""What a group has found before it is finished, kept beside the record for a run that is killed.

A record's line is a whole configuration. Judging and replaying a large group takes minutes, so each
text that was judged and each unit that was measured is appended here as it comes, and the next run
of the same inputs continues from there. The file is gone when the group is in the record.
"""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path

from llgbench.errors import ProcessError, RecordError
from llgbench.measure import messages
from llgbench.measure.messages import Header, Judged, Kept, Measured


class Journal:
    """The journal of one record; one group at a time stands in it."""

    def __init__(self, path: Path) -> None:
        """Name the file; nothing is read or written yet."""
        self._path = path
        self._size = 0  # up to here it is worth keeping

    def begin(self, header: Header) -> list[Kept]:
        """Begin a group, or continue with it.

        Args:
            header: the group, and the inputs that its configurations' numbers depend on.

        Returns:
            What a run that was killed has kept of configurations whose inputs are the same.

        Raises:
            RecordError: the file cannot be written.
        """
        kept = self._read(header)
        # Without what a kill has left half-written, and without what has changed.
        self._size = 0
        self._write("wb", b"".join(map(messages.encode, [header, *kept])))
        if kept:
            self._size = self._path.stat().st_size
        return kept

    def add(self, message: Kept) -> None:
        """Append a message and hand it to the system.

        Raises:
            RecordError: the disk refuses.
        """
        self._write("ab", messages.encode(message))
        self._size = self._path.stat().st_size

    def clear(self) -> None:
        """Remove the file: the group is in the record."""
        self._path.unlink(missing_ok=True)

    def _read(self, header: Header) -> list[Kept]:
        kept: list[Kept] = []
        try:
            stream = io.BytesIO(self._path.read_bytes())
            before = messages.read(stream, Header)
            if before is None or before.group != header.group:
                return []
            same = set(before.inputs) & set(header.inputs)
            current = {configuration for configuration, _ in same}
            while (message := messages.read_kept(stream)) is not None:
                if isinstance(message, Judged):
                    kept += [message] if message.configuration in current else []
                else:
                    parts = [part for part in message.parts if part[0] in current]
                    kept.append(Measured(message.unit, parts))
        except (OSError, ProcessError):
            return []  # damaged, or of another version: it is measured again
        return kept

    def _write(self, mode: str, data: bytes) -> None:
        try:
            with self._path.open(mode) as file:
                file.write(data)
        except OSError as why:
            with suppress(OSError):
                if self._size:
                    os.truncate(self._path, self._size)
                else:
                    self._path.unlink()
            raise RecordError(f"cannot write {self._path}: {why.strerror}") from None
