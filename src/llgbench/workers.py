"""Starts the processes of a comparison and brings their results, or says what became of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from llgbench.compare_worker import Job
from llgbench.errors import CompareError


class WorkerLostError(Exception):
    """A worker was killed; the others' results stay."""


def spawn(job: Job) -> dict[str, Any]:
    """Do a job in a process of its own.

    Raises:
        WorkerLostError: it was killed.
        CompareError: it refused the job; the message is its own.
    """
    with tempfile.TemporaryDirectory(prefix="llgbench-") as folder:
        ask, answer = Path(folder) / "job.json", Path(folder) / "result.json"
        job.write(ask)
        done = subprocess.run(
            [sys.executable, "-m", "llgbench.compare_worker", str(ask), str(answer)],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, check=False,
        )  # fmt: skip
        if done.returncode < 0:
            raise WorkerLostError(f"killed by {signal.Signals(-done.returncode).name}")
        if done.returncode != 0 or not answer.is_file():
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise CompareError(said[-1] if said else f"a worker ended with {done.returncode}")
        found: dict[str, Any] = json.loads(answer.read_text())
        return found
