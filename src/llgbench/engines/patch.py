"""The flavours as patches that a maintainer of llguidance can read and apply.

engine/ keeps what the build needs: patches of few lines of context, and a module beside them. Here
each flavour becomes one unified diff with three lines of context against the published crate.
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from llgbench.engines import build
from llgbench.engines.spec import FALLBACK, FIRST_BYTE, STOCK

# Each stands for itself; they also apply one after the other, in either order.
NAMES = {FIRST_BYTE: "first-byte.patch", FALLBACK: "greedy-lexeme-fallback.patch"}


def patches() -> dict[str, str]:
    """Return the diffs by file name, as ``git apply`` and ``patch -p1`` read them in the crate.

    Raises:
        EngineError: the crate cannot be had, or a patch of engine/ does not apply.
    """
    with tempfile.TemporaryDirectory() as name:
        trees = {}
        for flavour in (STOCK, *NAMES):
            folder = Path(name) / flavour
            folder.mkdir()
            build.lay_out(flavour, folder)
            trees[flavour] = folder / build.CRATE
        return {
            name: "".join(_differences(trees[STOCK], trees[flavour]))
            for flavour, name in NAMES.items()
        }


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
