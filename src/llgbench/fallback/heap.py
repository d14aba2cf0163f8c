"""How many bytes of the process's heap are in use, by the C library's own books.

An engine allocates by malloc, as Rust libraries do, so this is exact where a resident set is not:
it does not hold what was freed, and knows no pages.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from llgbench.errors import UnavailableError


class _Mallinfo2(ctypes.Structure):
    """struct mallinfo2 of malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    )  # fmt: skip


def in_use() -> int:
    """Return the bytes that malloc has given out, of all arenas and mapped blocks.

    Raises:
        UnavailableError: the C library is not glibc 2.33 or later.
    """
    found = _mallinfo2()()
    return int(found.uordblks + found.hblkhd)


@cache
def _mallinfo2() -> Callable[[], _Mallinfo2]:
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        raise UnavailableError("measuring memory requires glibc 2.33 or later") from None
    mallinfo2.restype = _Mallinfo2
    return mallinfo2
