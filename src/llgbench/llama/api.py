"""llama.cpp's library, as llama-cpp-python brings it, and what it says of its errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata
from typing import Any

from llgbench import files, processes
from llgbench._native import ffi, lib
from llgbench.errors import UnavailableError


@lru_cache(maxsize=1)
def llama() -> Any:
    """Return llama.cpp's vocabulary functions, ``lb_llama *``, from llama-cpp-python's library.

    Raises:
        UnavailableError: llama-cpp-python is not installed, or its library does not load.
    """
    try:
        metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        raise UnavailableError(
            "llama-cpp-python is not installed; run: pip install llama-cpp-python"
        ) from None
    try:
        from llama_cpp import llama_cpp as c
    except (ImportError, OSError, RuntimeError, AttributeError, ValueError) as why:
        raise UnavailableError(
            f"llama.cpp's library does not load: {files.one_line(why)}; "
            "install llama-cpp-python again"
        ) from None

    api = ffi.new("lb_llama *")
    error = ffi.new("char[]", 1024)
    if lib.lb_llama_open(os.fsencode(c._lib._name), api, error, len(error)) != 0:
        raise UnavailableError(f"llama.cpp's library is unusable: {ffi.string(error).decode()}")
    c.llama_backend_init()
    return api


def first_error() -> str:
    """Return the first error of llama.cpp's log since the last load; what it was about to do."""
    return str(ffi.string(lib.lb_llama_first_error()).decode(errors="replace")) or "no reason given"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep gguf.cpp's own words out of the user's one clear line; a worker keeps them."""
    if processes.keeps_last_words:
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
