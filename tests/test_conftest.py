"""How `make test` shares the tests out over processes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

WRITES_ITS_PROCESS = """
import os, pytest

@pytest.mark.parametrize("number", range(4))
def test_one(number):
    open(f"{__file__}.{os.environ['PYTEST_XDIST_WORKER']}", "w").close()
"""


def test_the_tests_of_a_file_share_a_process(tmp_path: Path) -> None:
    options = re.search(r"^PYTEST := .* -m pytest (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert options is not None
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(WRITES_ITS_PROCESS)
    words = options[1].replace("-n auto", "-n 2").split()
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *words, tmp_path], check=True, capture_output=True
    )
    for name in ("test_a.py", "test_b.py"):
        assert len(list(tmp_path.glob(f"{name}.gw*"))) == 1
