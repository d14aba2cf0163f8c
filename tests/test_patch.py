"""The fallback as a patch for upstream: it makes of the published crate what is built."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from llgbench.engines import build, cargo, patch


def test_the_patch_makes_what_is_built(tmp_path: Path) -> None:
    if (lack := cargo.missing()) is not None:
        pytest.skip(lack)
    content = patch.fallback_patch()
    folders = {}
    for flavour in build.FLAVOURS:
        folder = tmp_path / flavour
        folder.mkdir()
        build.lay_out(flavour, folder)
        folders[flavour] = folder / build.CRATE
    path = tmp_path / patch.NAME
    path.write_text(content)
    subprocess.run(["git", "apply", str(path)], cwd=folders["stock"], check=True)
    done = subprocess.run(
        ["diff", "-r", folders["stock"], folders["fallback"]], capture_output=True, check=False
    )
    assert done.stdout == b""
    assert content.count("\n@@ ") > 20
    for name in ("fallback.rs", "fallback/tests.rs"):
        assert f"new file mode 100644\n--- /dev/null\n+++ b/src/earley/parser/{name}\n" in content
