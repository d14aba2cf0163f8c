"""Builds ``llgbench._native`` from csrc/ (cffi, API mode); called by setup.py alone."""

from pathlib import Path

from cffi import FFI

# setuptools wants sources relative to setup.py, which is where the build runs.
_SOURCES = Path("src/llgbench/csrc")
_PARTS = (
    "clock", "engine", "bridge", "replay", "judge", "count", "record", "sampler", "decode",
    "batch",
    "peer_llguidance", "peer_xgrammar", "peer_gbnf", "peer_replay",
)  # fmt: skip
_HEADERS = ("llgbench.h", "peers.h")
_CSRC = Path(__file__).parent / "csrc"

ffibuilder = FFI()
ffibuilder.cdef("".join((_CSRC / name).read_text() for name in _HEADERS))
ffibuilder.set_source(
    "llgbench._native",
    """
    #include <stdbool.h>
    #include <stddef.h>
    #include <stdint.h>
    #include "llgbench.h"
    #include "peers.h"
    """,
    sources=[str(_SOURCES / f"{name}.c") for name in _PARTS],
    include_dirs=[str(_SOURCES)],
    depends=[str(_SOURCES / name) for name in (*_HEADERS, "internal.h")],
    libraries=["dl", "pthread"],
    extra_compile_args=["-std=gnu11", "-O3", "-Wall", "-Wextra"],
)
