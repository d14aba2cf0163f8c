"""Starts the processes of a comparison and brings their results, or says what became of them."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from llgbench import processes
from llgbench.compare.worker import Job
from llgbench.errors import CompareError

# How long a process may take beyond what it was asked to measure for: setting up, and verifying.
_SETUP_S = 600.0


class WorkerLostError(Exception):
    """A worker was killed; the others' results stay. The message has its last words."""


def spawn(job: Job) -> dict[str, Any]:
    """Do a job in a process of its own.

    Raises:
        WorkerLostError: it was killed, or did not come to its end.
        CompareError: it refused the job; the message is its own.
    """
    with processes.temporary_folder() as folder:
        ask, answer = folder / "job.json", folder / "result.json"
        job.write(ask)
        done = processes.run(
            [*processes.python("llgbench.compare.worker"), ask, answer, str(os.getpid())],
            stdout=subprocess.DEVNULL, seconds=job.seconds + _SETUP_S,
        )  # fmt: skip
        if done.status < 0 or done.limit is not None:
            raise WorkerLostError(done.words)
        if not done.ok or not answer.is_file():
            raise CompareError(done.words)
        found: dict[str, Any] = json.loads(answer.read_text())
        return found
