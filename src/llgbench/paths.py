"""Where things are: the suite's inputs (one checkout) and the user's cache.

The inputs (grammars/, vocabs/, results/, engine/) belong to a checkout, not to the installed
package: ASV installs old commits, and their history keeps its meaning only if every commit is
measured on the same inputs.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from llgbench.errors import InputError

ROOT_VARIABLE = "LLGBENCH_ROOT"
CACHE_VARIABLE = "LLGBENCH_CACHE"
_MARKS = ("grammars", "vocabs/vocabs.toml")


def root() -> Path:
    """Return the checkout that holds grammars/ and vocabs/.

    In order: ``$LLGBENCH_ROOT``, the working directory or a parent of it, the checkout the package
    is installed from in editable mode.

    Raises:
        InputError: no such checkout is in any of these places.
    """
    named = os.environ.get(ROOT_VARIABLE)
    if named:
        path = Path(os.path.realpath(named))
        if not _is_root(path):
            raise InputError(
                f"{ROOT_VARIABLE}={named} is not an llgbench checkout (no grammars/ there)"
            )
        return path
    here = Path.cwd()
    for path in (here, *here.parents, Path(__file__).resolve().parents[2]):
        if _is_root(path):
            return path
    raise InputError(f"no llgbench checkout above {here}; run there, or set {ROOT_VARIABLE} to one")


def cache() -> Path:
    """Return the folder for what is built or fetched once per user (not created here).

    Raises:
        InputError: no variable names one, and the user has no home.
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(os.path.realpath(named))
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "llgbench"
    try:
        return Path(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir, ".cache/llgbench")
    except KeyError:
        raise InputError(
            f"this user has no home for what is built once; set {CACHE_VARIABLE} to a folder"
        ) from None


def _is_root(path: Path) -> bool:
    return all((path / mark).exists() for mark in _MARKS)
