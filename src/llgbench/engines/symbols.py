"""What a library says of itself beside its code: line tables are dropped, names are kept."""

from __future__ import annotations

import shutil
from pathlib import Path

from llgbench import processes


def drop_lines(library: Path) -> bool:
    """Remove the debug information of a private copy, and keep the names of functions.

    Returns:
        Whether that was done; binutils may be missing, or not know the file.
    """
    objcopy = shutil.which("objcopy")
    if objcopy is None:
        return False
    part = library.with_name(f"{library.name}.part")
    done = processes.run([objcopy, "--strip-debug", str(library), str(part)])
    if done.ok:
        part.replace(library)
    part.unlink(missing_ok=True)
    return done.ok
