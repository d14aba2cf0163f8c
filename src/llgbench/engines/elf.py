"""ELF: whether a file can be a shared library for this machine."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Literal

_ELF_HEAD = 64
_PT_LOAD = 1


def fault(path: Path) -> str | None:
    """Return what dlopen would say badly (another machine) or die of (a file cut short)."""
    try:
        with path.open("rb") as file, open(sys.executable, "rb") as this:
            head, own = file.read(_ELF_HEAD), this.read(_ELF_HEAD)
            if len(head) < _ELF_HEAD or head[:4] != b"\x7fELF" or own[:4] != b"\x7fELF":
                return None  # dlopen has a clear word for these
            # class, byte order, machine
            if (head[4:6], head[18:20]) != (own[4:6], own[18:20]):
                order: Literal["little", "big"] = "little" if head[5] == 1 else "big"
                machine = int.from_bytes(head[18:20], order)
                return f"it is built for another machine (ELF machine {machine})"
            if head[4] != 2:
                return None
            start, entry, entries = (
                *struct.unpack_from("=Q", head, 32), *struct.unpack_from("=HH", head, 54)
            )  # fmt: skip
            file.seek(start)
            table = file.read(entry * entries)
            size = path.stat().st_size
    except OSError as error:
        return error.strerror
    except (OverflowError, ValueError):  # a place that no file has
        return "the file is damaged"
    if entry < 40 or len(table) < entry * entries:
        return "the file is cut short"
    for at in range(0, len(table), entry):
        (kind,) = struct.unpack_from("=I", table, at)
        offset, length = (
            *struct.unpack_from("=Q", table, at + 8), *struct.unpack_from("=Q", table, at + 32)
        )  # fmt: skip
        # A segment mapped beyond the end of its file kills the process at its first use.
        if kind == _PT_LOAD and offset + length > size:
            return f"the file is cut short ({size} bytes of at least {offset + length})"
    return None
