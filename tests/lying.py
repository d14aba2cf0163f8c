"""Engines that do as a real one does, but for one function."""

from __future__ import annotations

import subprocess
from pathlib import Path

from llgbench.engine import Engine, load

SHIM = r"""
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
static void *real(const char *name) {
    static void *library;
    if (!library) library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    return dlsym(library, name);
}
"""
# Return type, name, parameters and arguments of each function.
FUNCTIONS = [
    ("const char *", "llg_get_version", "(void)", ""),
    ("void *", "llg_new_tokenizer", "(void *i, char *e, size_t n)", "i, e, n"),
    ("void", "llg_free_tokenizer", "(void *t)", "t"),
    ("void", "llg_constraint_init_set_defaults", "(void *i, void *t)", "i, t"),
    ("void *", "llg_new_matcher", "(void *i, char *k, char *d)", "i, k, d"),
    ("void *", "llg_clone_matcher", "(void *m)", "m"),
    ("void", "llg_free_matcher", "(void *m)", "m"),
    ("char *", "llg_matcher_get_error", "(void *m)", "m"),
    ("int32_t", "llg_matcher_compute_mask", "(void *m)", "m"),
    ("uint32_t *", "llg_matcher_get_mask", "(void *m)", "m"),
    ("size_t", "llg_matcher_get_mask_byte_size", "(void *m)", "m"),
    ("int32_t", "llg_matcher_consume_token", "(void *m, uint32_t t)", "m, t"),
    ("int32_t", "llg_matcher_validate_tokens", "(void *m, uint32_t *t, size_t n)", "m, t, n"),
    ("int32_t", "llg_matcher_compute_ff_tokens", "(void *m, uint32_t *o, size_t n)", "m, o, n"),
    ("int32_t", "llg_matcher_rollback", "(void *m, size_t n)", "m, n"),
    ("int32_t", "llg_matcher_reset", "(void *m)", "m"),
    ("bool", "llg_matcher_is_accepting", "(void *m)", "m"),
    ("bool", "llg_matcher_is_stopped", "(void *m)", "m"),
]  # fmt: skip


def lying(folder: Path, engine: Engine, name: str, body: str) -> Engine:
    """Build an engine that does as another, but for one function."""
    lines = [f'#define REAL "{engine.path}"', SHIM]
    for kind, function, parameters, arguments in FUNCTIONS:
        call = f'(({kind} (*){parameters})real("{function}"))({arguments})'
        lies = body.replace("TRUTH", call)
        does = lies if function == f"llg_{name}" else f"return {call};"
        if kind == "void":
            does = does.removeprefix("return ")
        lines.append(f"{kind} {function}{parameters} {{ {does} }}")
    source, library = folder / "shim.c", folder / "shim.so"
    source.write_text("\n".join(lines))
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-w", "-O1", "-o", library, source, "-ldl"], check=True
    )
    return load(library)
