"""The fallback as a patch that a maintainer of llguidance can read and apply.

engine/ keeps what the build needs: a patch with one line of context, and a module beside it. Here
both become one unified diff with three lines of context against the published crate.
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from llgbench.engines import build

NAME = "greedy-lexeme-fallback.patch"


def fallback_patch() -> str:
    """Return the diff, as ``git apply`` and ``patch -p1`` read it in the crate's folder.

    Raises:
        EngineError: the crate cannot be had, or a patch of engine/ does not apply.
    """
    with tempfile.TemporaryDirectory() as name:
        trees = []
        for flavour in build.FLAVOURS:
            folder = Path(name) / flavour
            folder.mkdir()
            build.lay_out(flavour, folder)
            trees.append(folder / build.CRATE)
        return "".join(_differences(*trees))


def _differences(before: Path, after: Path) -> Iterator[str]:
    for path in sorted(path for path in after.rglob("*") if path.is_file()):
        name = path.relative_to(after).as_posix()
        old, new = before / name, path.read_bytes()
        is_new = not old.exists()
        if not is_new and old.read_bytes() == new:
            continue
        yield f"diff --git a/{name} b/{name}\n"
        if is_new:
            yield "new file mode 100644\n"
        yield from difflib.unified_diff(
            [] if is_new else old.read_text().splitlines(keepends=True),
            new.decode().splitlines(keepends=True),
            "/dev/null" if is_new else f"a/{name}",
            f"b/{name}",
        )
