"""Starts the processes of a comparison and brings their answers, or says what became of them."""

from __future__ import annotations

from llgbench import isolated
from llgbench.compare import worker
from llgbench.compare.messages import Answer, Job
from llgbench.errors import CompareError, LlgbenchError, ProcessError
from llgbench.isolated import Limits

# How long a process may take beyond what it was asked to measure for: setting up, and verifying.
_SETUP_S = 600.0


class WorkerLostError(Exception):
    """A worker was killed; the others' answers stay. The message has its last words."""


def spawn(job: Job) -> Answer:
    """Do a job in a process of its own.

    Raises:
        WorkerLostError: it was killed, or did not come to its end.
        CompareError: it refused the job; the message is its own.
    """
    try:
        return isolated.call_within(Limits.default(job.seconds + _SETUP_S), worker.run, job)
    except ProcessError as error:
        raise WorkerLostError(str(error)) from None
    except LlgbenchError as error:
        raise CompareError(str(error)) from None
