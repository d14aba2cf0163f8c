"""Arrays of times as plain data, for JSON: packed small, and read back without trust."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.uint64]
Arrays = list[Times]

# Far above any run; what claims to hold more is damaged, or made to exhaust memory.
MAX_SAMPLE = 1 << 25


def pack(arrays: Sequence[Times]) -> dict[str, Any]:
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


def unpack(packed: Mapping[str, Any], limit: int = MAX_SAMPLE) -> Arrays:
    """Return what :func:`pack` took.

    Args:
        packed: of the types of record_lines.Packed.
        limit: the most values it may hold.

    Raises:
        ValueError: it is damaged, or holds more.
    """
    lengths = packed["lengths"]
    n = sum(lengths)
    if n > limit:
        raise ValueError(f"{n} values are more than any run has")
    inflate = zlib.decompressobj()
    try:
        planes = inflate.decompress(base64.b64decode(packed["data"], validate=True), 8 * n + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(planes) != 8 * n or not inflate.eof:
        raise ValueError("lengths and data disagree")
    joined = np.frombuffer(planes, np.uint8).reshape(8, -1).T.copy().view("<u8").ravel()
    # Each a copy: a view would keep the whole of it in memory.
    return np.split(joined.astype(np.uint64), np.cumsum(lengths)[:-1]) if lengths else []
