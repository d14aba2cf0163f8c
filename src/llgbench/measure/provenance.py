"""Where numbers come from: the machine, the packages, the commit."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import llgbench
from llgbench import git
from llgbench._native import lib
from llgbench.errors import LlgbenchError
from llgbench.measure.replay import empty_step

PACKAGES = ("llguidance", "llama-cpp-python", "numpy")


def collect(root: Path) -> dict[str, Any]:
    """Return everything about this machine and checkout that a number depends on."""
    empty = empty_step()
    return {
        "llgbench": llgbench.__version__,
        "git": git_state(root),
        "machine": machine(),
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "clock": "tsc" if lib.lb_clock_is_tsc else "clock_monotonic",
        "empty_step_read_ns": round(empty.read_ns, 1),
        "empty_step_wall_ns": round(empty.wall_ns, 1),
    }


def identity(provenance: dict[str, Any]) -> dict[str, Any]:
    """Return the part that two runs must share for one to go on where the other was killed."""
    return {k: v for k, v in provenance.items() if not k.startswith("empty_step")}


def machine() -> dict[str, Any]:
    """Return the processor, its governor, the cores this process may use, and the system."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "governor": governor(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
    }


def governor() -> str | None:
    """Return the frequency governor of core 0, None where the system shows none."""
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    try:
        return path.read_text().strip()
    except OSError:
        return None


def git_state(root: Path) -> dict[str, Any]:
    """Return commit, whether the tree is dirty, and a hash of what is not committed."""
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return {"commit": None, "dirty": None, "changes": None}
    inputs = ("--", ".", ":!results")  # what a run itself writes is no change of what it measured
    # As bytes: a changed file need not be UTF-8.
    changes = _git(root, "status", "--porcelain", *inputs) or b""
    changes += _git(root, "diff", "HEAD", *inputs) or b""
    digest = hashlib.sha256(changes).hexdigest()[:12] if changes else None
    return {"commit": commit.decode(), "dirty": bool(changes), "changes": digest}


def _git(root: Path, *arguments: str) -> bytes | None:
    try:
        return git.ask(root, *arguments).strip()
    except LlgbenchError:
        return None


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def package_version(package: str) -> str | None:
    """Return an installed package's version, None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
