"""A private copy without line tables: the same code, the same names, less to read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from llgbench.engines import registry, symbols
from llgbench.engines.engine import load
from llgbench.errors import UnavailableError

pytestmark = pytest.mark.skipif(shutil.which("objcopy") is None, reason="needs binutils")


def names(library: Path) -> set[str]:
    done = subprocess.run(["nm", library], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in done.stdout.splitlines() if " t " in line.lower()}


def test_lines_go_and_names_stay(tmp_path: Path) -> None:
    try:
        stock = registry.locate("stock")
    except UnavailableError as error:
        pytest.skip(str(error))
    copy = Path(shutil.copy(stock, tmp_path / "stock.so"))
    assert symbols.drop_lines(copy)
    assert copy.stat().st_size < stock.stat().st_size / 2
    assert names(copy) == names(stock)
    assert load(copy).release == load(stock).release
    assert [path.name for path in tmp_path.iterdir()] == ["stock.so"]


def test_what_is_not_a_library_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_bytes(b"no library")
    assert not symbols.drop_lines(tmp_path / "x.so")
    assert (tmp_path / "x.so").read_bytes() == b"no library"
    assert [path.name for path in tmp_path.iterdir()] == ["x.so"]
