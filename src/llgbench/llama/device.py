"""Devices that ggml knows, and the memory of this machine."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Literal, get_args

from llgbench.errors import UnavailableError
from llgbench.llama.api import llama

Device = Literal["cpu", "cuda"]
DEVICES: tuple[Device, ...] = get_args(Device)


def device_facts(device: Device) -> dict[str, str]:
    """Return the device's kind, name and driver.

    Raises:
        UnavailableError: llama.cpp was built without it, or sees none.
    """
    if device == "cpu":
        return {"kind": "cpu"}
    from llama_cpp import llama_cpp as c

    remedy = "docs/cuda.md has the command that installs the CUDA build"
    llama()
    if not c.llama_supports_gpu_offload():
        raise UnavailableError(
            f"--device cuda: this llama.cpp was built without GPU offload; {remedy}"
        )
    for name, description in _ggml_devices():
        if name.startswith("CUDA"):
            return {"kind": "cuda", "name": f"{name}: {description}", "driver": _cuda_driver()}
    raise UnavailableError(f"--device cuda: llama.cpp sees no CUDA device here; {remedy}")


def _ggml_devices() -> list[tuple[str, str]]:
    """Return name and description of every device ggml knows (ggml-backend.h)."""
    from llama_cpp import llama_cpp as c

    # llama.cpp links the library with the registry, so its symbols are found through it.
    library = ctypes.CDLL(c._lib._name)
    library.ggml_backend_dev_count.restype = ctypes.c_size_t
    library.ggml_backend_dev_get.restype = ctypes.c_void_p
    library.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    for function in (library.ggml_backend_dev_name, library.ggml_backend_dev_description):
        function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    found = []
    for i in range(library.ggml_backend_dev_count()):
        device = library.ggml_backend_dev_get(i)
        name = library.ggml_backend_dev_name(device).decode(errors="replace")
        text = library.ggml_backend_dev_description(device).decode(errors="replace")
        found.append((name, text))
    return found


def _cuda_driver() -> str:
    try:
        return Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        pass
    try:
        version = ctypes.c_int(0)
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
        return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    except (OSError, AttributeError):
        return "unknown"


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
