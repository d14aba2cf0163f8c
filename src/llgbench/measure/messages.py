"""What the supervisor asks a worker, and what the worker answers.

Messages are msgpack with a length before each. They are ``msgspec.Struct`` and not dataclasses:
several kinds share a pipe, and the tag tells them apart.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
import numpy as np

from llgbench import crossing
from llgbench.errors import ProcessError
from llgbench.inputs.case import Case
from llgbench.inputs.configuration import Configuration
from llgbench.measure.checks import Judgement
from llgbench.measure.rounds import Rounds, Samples, Unit

T = TypeVar("T")

# Before each message: how long it is.
LENGTH = struct.Struct("<Q")

# No unit of samples comes near it; a length beyond it is a damaged stream.
_MOST = 4 << 30


class Setup(msgspec.Struct, frozen=True):
    """The first message to a worker.

    Attributes:
        vocab: a name of the catalogue or the path of a GGUF.
        stage: the file that :class:`Stage` maps.
        memory_mib: the most memory it may write to.
    """

    vocab: str
    stage: str
    memory_mib: int


class Judged(msgspec.Struct, frozen=True, tag=True):
    """One text judged under one configuration; ``text`` is its index in the case."""

    configuration: Configuration
    text: int
    judgement: Judgement


class Header(msgspec.Struct, frozen=True):
    """The head of a journal: the group it is of, and a hash of each configuration's inputs."""

    group: str
    inputs: list[tuple[Configuration, str]]


class Column(msgspec.Struct, frozen=True):
    """Arrays of uint64, one after another as little-endian bytes, and their lengths."""

    lengths: list[int]
    data: bytes


class Measured(msgspec.Struct, frozen=True, tag=True):
    """One unit measured, the fields of ``Samples`` by configuration; see :func:`pack`."""

    unit: Unit
    parts: list[tuple[Configuration, dict[str, Column]]]


class Finished(msgspec.Struct, frozen=True, tag=True):
    """Everything about a measured configuration but its samples; as in records.Entry."""

    configuration: Configuration
    engine: dict[str, str]
    verdict: dict[str, Any]
    facts: dict[str, Any]


class NotAvailable(msgspec.Struct, frozen=True, tag=True):
    """A configuration that cannot be measured, and why."""

    configuration: Configuration
    reason: str


class VocabRefused(msgspec.Struct, frozen=True, tag=True):
    """The vocabulary cannot be opened; the worker ends."""

    reason: str


class GroupEnd(msgspec.Struct, frozen=True, tag=True):
    """Everything of a group has been said; where the worker's time went since the last one."""

    inside_ns: int
    setup_ns: int


Answer = Judged | Measured | Finished | NotAvailable | VocabRefused | GroupEnd
Kept = Judged | Measured


class Group(msgspec.Struct, frozen=True):
    """Configurations of one case on the worker's vocabulary, measured together.

    Attributes:
        case: with its texts.
        configurations: what to judge and measure.
        rounds: how often each is replayed.
        judged: texts that were judged before.
        measured: units that were measured before, under every configuration.
    """

    case: Case
    configurations: list[Configuration]
    rounds: Rounds
    judged: list[Judged]
    measured: list[Unit]


def pack(samples: Samples) -> dict[str, Column]:
    """Return the samples of a subject as columns; :func:`unpack` is the inverse."""
    columns: dict[str, Column] = {}
    for name, value in vars(samples).items():
        if isinstance(value, int):
            arrays = [np.array([value], np.uint64)]
        elif isinstance(value, str):
            arrays = [np.frombuffer(value.encode(), np.uint8).astype(np.uint64)]
        elif name in _SCALARS:
            arrays = [np.array(value, np.uint64)]
        else:
            arrays = value
        data = b"".join(a.astype("<u8", copy=False).tobytes() for a in arrays)
        columns[name] = Column([len(a) for a in arrays], data)
    return columns


def unpack(columns: Mapping[str, Column]) -> Samples:
    """Return what :func:`pack` took."""
    samples = Samples()
    for name, column in columns.items():
        values = np.frombuffer(column.data, "<u8").astype(np.uint64)
        if isinstance(getattr(samples, name), int):
            setattr(samples, name, int(values[0]))
        elif isinstance(getattr(samples, name), str):
            setattr(samples, name, bytes(values.tolist()).decode())
        elif name in _SCALARS:
            setattr(samples, name, values.tolist())
        elif column.lengths:
            setattr(samples, name, list(np.split(values, np.cumsum(column.lengths)[:-1])))
    return samples


# Fields of Samples that are one number per replay; the others are one array per replay.
_SCALARS = frozenset({"compile_ns", "first_mask_ns"})


def encode(message: Any) -> bytes:
    """Return a message as it stands in a pipe or a journal."""
    data = crossing.encode(message)
    return LENGTH.pack(len(data)) + data


def read(stream: IO[bytes], kind: type[T]) -> T | None:
    """Read one message; None at the end of the stream, or where it breaks off within a message.

    Raises:
        ProcessError: it is not a message of this kind.
    """
    data = _read(stream)
    return (
        None
        if data is None
        else _decode(data, msgspec.msgpack.Decoder(kind, dec_hook=crossing.hook))
    )


def read_kept(stream: IO[bytes]) -> Kept | None:
    """Read one message of a journal; as :func:`read`."""
    data = _read(stream)
    return None if data is None else _decode(data, _KEPT)


def decode_answer(data: bytes) -> Answer:
    """Return a worker's answer from its bytes, without the length.

    Raises:
        ProcessError: it is none.
    """
    return _decode(data, _ANSWER)


def _read(stream: IO[bytes]) -> bytes | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    if length > _MOST:
        raise ProcessError("a message is damaged: it has an impossible length")
    data = stream.read(length)
    return None if len(data) < length else data


def _decode(data: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as why:
        raise ProcessError(f"a message is damaged: {why}") from None


_ANSWER: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer, dec_hook=crossing.hook)
_KEPT: msgspec.msgpack.Decoder[Kept] = msgspec.msgpack.Decoder(Kept, dec_hook=crossing.hook)


class Doing(IntEnum):
    """What a worker is doing, for the case that it does not survive it."""

    STARTING = 0
    OPENING = 1
    TEXTS = 2
    TOKENIZER = 3
    JUDGING = 4
    REPLAYING = 5
    IDLE = 6


class Stage:
    """What a worker is doing, in memory shared with the supervisor.

    A message per replay would wake the supervisor in the middle of a measurement; a store does not.
    """

    _FORMAT = struct.Struct("<4I")

    def __init__(self, path: Path | str) -> None:
        """Map the file; the supervisor makes it first, see :meth:`create`."""
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), self._FORMAT.size)

    @classmethod
    def create(cls, path: Path) -> Stage:
        """Make the file and map it."""
        path.write_bytes(bytes(cls._FORMAT.size))
        return cls(path)

    def set(self, doing: Doing, configuration: int = 0, text: int = 0) -> None:
        """Say what is done next; ``configuration`` and ``text`` are indices within the group."""
        count = self._FORMAT.unpack_from(self._memory)[0]
        self._FORMAT.pack_into(
            self._memory, 0, (count + 1) & 0xFFFFFFFF, doing, configuration, text
        )

    def get(self) -> tuple[int, Doing, int, int]:
        """Return a number that changes with each call of :meth:`set`, and what was said last."""
        count, doing, configuration, text = self._FORMAT.unpack_from(self._memory)
        return count, Doing(doing), configuration, text

    def close(self) -> None:
        """Unmap the file."""
        self._memory.close()
