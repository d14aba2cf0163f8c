"""Engines that fail on purpose: the installed one, with a function of its C API replaced."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from llgbench.engines import registry

_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
"""
_FUNCTIONS = {
    "llg_get_version": ("const char *", "void", ""),
    "llg_new_tokenizer": ("void *", "void *a, char *b, size_t c", "a, b, c"),
    "llg_new_matcher": ("void *", "void *a, const char *b, const char *c", "a, b, c"),
    "llg_matcher_compute_mask": ("int32_t", "void *a", "a"),
    "llg_matcher_get_mask": ("const uint32_t *", "void *a", "a"),
    "llg_matcher_get_mask_byte_size": ("size_t", "void *a", "a"),
    "llg_matcher_consume_token": ("int32_t", "void *a, uint32_t b", "a, b"),
    "llg_matcher_reset": ("int32_t", "void *a", "a"),
    "llg_clone_matcher": ("void *", "void *a", "a"),
    "llg_matcher_validate_tokens": ("int32_t", "void *a, const uint32_t *b, size_t c", "a, b, c"),
    "llg_matcher_compute_ff_tokens": ("int32_t", "void *a, uint32_t *b, size_t c", "a, b, c"),
    "llg_matcher_rollback": ("int32_t", "void *a, size_t b", "a, b"),
    "llg_matcher_is_accepting": ("bool", "void *a", "a"),
    "llg_matcher_is_stopped": ("bool", "void *a", "a"),
}


def build(folder: Path, function: str, body: str) -> Path:
    """Build an engine whose ``function`` first does ``body`` (C), then what the real one does.

    In ``body`` the parameters are ``a``, ``b`` and ``c``, and TRUTH calls the real one.

    The test is skipped where there is no C compiler or no engine.
    """
    compiler, real = shutil.which("cc"), registry.wheel_path()
    if compiler is None:
        pytest.skip("building an engine that fails requires a C compiler")
    if real is None:
        pytest.skip("llguidance is not installed")
    kind, parameters, arguments = _FUNCTIONS[function]
    source = folder / f"{function}.c"
    source.write_text(
        f"{_SOURCE}{kind} {function}({parameters}) {{\n"
        f"#define TRUTH REAL({function})({arguments})\n    {body}\n    return TRUTH;\n}}\n"
    )
    library = folder / f"{function}.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, source, "-Wl,--no-as-needed", real, "-ldl"],
        check=True, capture_output=True,
    )  # fmt: skip
    return library
