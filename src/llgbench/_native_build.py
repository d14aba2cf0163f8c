"""Builds ``llgbench._native`` from csrc/ (cffi, API mode); called by setup.py alone."""

from pathlib import Path

from cffi import FFI

# setuptools wants sources relative to setup.py, which is where the build runs.
_SOURCES = Path("src/llgbench/csrc")
_PARTS = (
    "clock", "engine", "bridge", "replay", "judge", "count", "record", "sampler", "decode", "batch",
)  # fmt: skip
_HEADER = (Path(__file__).parent / "csrc" / "llgbench.h").read_text()

ffibuilder = FFI()
ffibuilder.cdef(_HEADER)
ffibuilder.set_source(
    "llgbench._native",
    """
    #include <stdbool.h>
    #include <stddef.h>
    #include <stdint.h>
    #include "llgbench.h"
    """,
    sources=[str(_SOURCES / f"{name}.c") for name in _PARTS],
    include_dirs=[str(_SOURCES)],
    depends=[str(_SOURCES / name) for name in ("llgbench.h", "internal.h")],
    libraries=["dl", "pthread"],
    extra_compile_args=["-std=gnu11", "-O3", "-Wall", "-Wextra"],
)
