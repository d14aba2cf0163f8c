"""Asking git; it reads the user's configuration, and its own words reach the user."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from llgbench import files
from llgbench.errors import InputError, UnavailableError

# Set where a hook or an alias of git runs the command; they would name another repository.
_OTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


def ask(folder: Path, *arguments: str) -> bytes:
    """Return what git writes on stdout, run in a folder.

    Raises:
        InputError: git fails; the message is all that git says, its remedy too.
        UnavailableError: there is no git.
    """
    environment = {k: v for k, v in os.environ.items() if k not in _OTHER_REPOSITORY}
    # `status` would also refresh the index: killed meanwhile, as by a full disk, it leaves a lock.
    own = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], env={**environment, **own},
            stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
    except OSError as error:
        raise UnavailableError(f"git does not run: {error.strerror}") from None
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").removeprefix("fatal: ").strip()
        raise InputError(files.one_line(words, limit=600) or f"git {arguments[0]} fails")
    return done.stdout
