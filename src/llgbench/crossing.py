"""Values on their way to another process: msgpack, with paths of any bytes and NumPy's integers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from llgbench.errors import InputError

T = TypeVar("T")


def encode(value: Any) -> bytes:
    """Return a value of builtins, dataclasses, structs and paths as msgpack.

    Raises:
        InputError: a text in it is a name whose bytes are not UTF-8.
    """
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError as why:
        shown = why.object.encode(errors="backslashreplace").decode()
        raise InputError(f"{shown}: a name that is not UTF-8 cannot be used here") from None


def decode(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Return what :func:`encode` was given, by its type.

    Raises:
        msgspec.DecodeError: it is something else.
    """
    return msgspec.msgpack.decode(data, type=kind, dec_hook=hook)


def hook(kind: type, value: Any) -> Any:
    """Return a value of a type that msgpack has no name for; for decoders."""
    if issubclass(kind, Path) and isinstance(value, bytes):
        return Path(os.fsdecode(value))
    raise NotImplementedError(f"{kind.__name__} does not cross from another process")


def _to_builtin(value: Any) -> Any:
    if isinstance(value, Path):
        return os.fsencode(value)
    if isinstance(value, np.integer):
        return int(value)
    raise NotImplementedError(f"{type(value).__name__} does not cross to another process")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_to_builtin)
