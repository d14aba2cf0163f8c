"""The flavours as patches for upstream: each makes of the published crate what is built."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from llgbench import paths
from llgbench.engines import build, cargo, patch
from llgbench.engines.spec import FALLBACK, FIRST_BYTE, STOCK


@pytest.fixture(scope="module")
def crates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The crate of each flavour, as it is built."""
    if (lack := cargo.missing()) is not None:
        pytest.skip(lack)
    found = {}
    for flavour in build.FLAVOURS:
        folder = tmp_path_factory.mktemp(flavour)
        build.lay_out(flavour, folder)
        found[flavour] = folder / build.CRATE
    return found


@pytest.fixture(scope="module")
def patches(crates: dict[str, Path]) -> dict[str, str]:
    return patch.patches()


def applied(crate: Path, *contents: str, folder: Path) -> Path:
    """Return a copy of a crate with patches applied by git."""
    copy = folder / "crate"
    subprocess.run(["cp", "-r", str(crate), str(copy)], check=True)
    for content in contents:
        subprocess.run(["git", "apply", "-"], input=content, text=True, cwd=copy, check=True)
    return copy


def differing(one: Path, other: Path) -> str:
    return subprocess.run(
        ["diff", "-r", str(one), str(other)], capture_output=True, text=True, check=False
    ).stdout


@pytest.mark.parametrize("flavour", [FIRST_BYTE, FALLBACK])
def test_a_patch_makes_what_is_built(
    crates: dict[str, Path], patches: dict[str, str], flavour: str, tmp_path: Path
) -> None:
    made = applied(crates[STOCK], patches[patch.NAMES[flavour]], folder=tmp_path)
    assert differing(made, crates[STOCK]) != ""
    assert differing(made, crates[flavour]) == ""


def test_the_fallback_is_one_patch_with_its_module(patches: dict[str, str]) -> None:
    content = patches[patch.NAMES[FALLBACK]]
    assert content.count("\n@@ ") > 20
    for name in ("fallback.rs", "fallback/tests.rs"):
        assert f"new file mode 100644\n--- /dev/null\n+++ b/src/earley/parser/{name}\n" in content


def test_the_patches_apply_one_after_the_other(
    crates: dict[str, Path], patches: dict[str, str], tmp_path: Path
) -> None:
    made = []
    for number, order in enumerate((list(patches.values()), list(patches.values())[::-1])):
        folder = tmp_path / str(number)
        folder.mkdir()
        made.append(applied(crates[STOCK], *order, folder=folder))
    assert differing(*made) == ""


def test_first_byte_is_the_file_of_engine_and_one_change(patches: dict[str, str]) -> None:
    """A reviewer reads one condition and its tests; it is written once."""
    content = patches[patch.NAMES[FIRST_BYTE]]
    kept = (paths.root() / "engine/first-byte.patch").read_text()
    kept = re.sub("^(@@ .* @@).*", r"\1", kept, flags=re.MULTILINE)
    assert content == f"diff --git a/src/earley/lexer.rs b/src/earley/lexer.rs\n{kept}"
    code = content[: content.index("mod tests")]
    assert len(re.findall(r"^\+(?!\+)(?!\s*//)", code, re.MULTILINE)) < 8
    assert len(re.findall(r"^-(?!-)", code, re.MULTILINE)) == 1
    assert "#[test]" in content
