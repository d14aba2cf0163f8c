"""The engines' Rust tests, which stand beside their code and go upstream with it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from llgbench import paths
from llgbench.engines import build, cargo
from llgbench.engines.spec import FALLBACK, FIRST_BYTE

# What the crate's unit tests need of others; its benchmarks need many more.
NEEDED = ("regex", "serde_json")


def without_benchmarks(manifest: str) -> str:
    """Leave out what only integration tests and benchmarks need."""
    sections = re.split(r"\n(?=\[)", manifest)
    needed = "|".join(NEEDED)
    left_out = re.compile(rf"\[\[(test|bench)\]\]|\[dev-dependencies\.(?!({needed})\])")
    return "\n".join(section for section in sections if not left_out.match(section))


@pytest.mark.parametrize(
    ("flavour", "module", "source"),
    [
        (FALLBACK, "earley::parser::fallback", "fallback_tests.rs"),
        (FIRST_BYTE, "earley::lexer", "first-byte.patch"),
    ],
)
def test_the_rust_tests_pass(flavour: str, module: str, source: str, tmp_path: Path) -> None:
    if (lack := cargo.missing()) is not None:
        pytest.skip(lack)
    build.lay_out(flavour, tmp_path)
    crate = tmp_path / build.CRATE
    manifest = crate / "Cargo.toml"
    manifest.write_text(without_benchmarks(manifest.read_text()))
    # The published crate's own lock file pins the rest.
    target = paths.cache() / "cargo" / "target"
    environment = {**cargo.environment(), "CARGO_TARGET_DIR": str(target / "unit-tests")}
    fetched = subprocess.run(
        ["cargo", "fetch"], cwd=crate, env=environment, capture_output=True, text=True, check=False
    )
    if fetched.returncode != 0:
        pytest.skip(f"what the crate's tests need cannot be fetched: {fetched.stderr[-200:]}")
    done = subprocess.run(
        ["cargo", "test", "--lib", "--offline", module],
        cwd=crate, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"test result: ok\. (\d+) passed; 0 failed", done.stdout)
    assert passed is not None, done.stdout
    written = (paths.root() / "engine" / source).read_text().count("#[test]")
    assert int(passed[1]) == written > 0
