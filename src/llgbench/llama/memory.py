"""The memory of this machine."""

from __future__ import annotations

import os
from pathlib import Path

from llgbench.errors import UnavailableError


def available_memory() -> int:
    """Return the bytes this process may still take, by the kernel's word and its cgroup's."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")]
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found = [int(line.split()[1]) * 1024]
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if limit.isdecimal():
            used = int(Path("/sys/fs/cgroup/memory.current").read_text())
            found.append(max(0, int(limit) - used))
    except (OSError, ValueError):
        pass
    return min(found)


def require_memory(needed: int, what: str) -> None:
    """Refuse what needs more bytes than the machine has free.

    Raises:
        UnavailableError: it does.
    """
    there = available_memory()
    if needed > there:
        raise UnavailableError(
            f"no memory for {what}: it takes {size_text(needed)}, {size_text(there)} are available"
        )


def size_text(n: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{n / 2**30:.1f} GiB" if n >= 2**30 else f"{n / 2**20:.0f} MiB"
