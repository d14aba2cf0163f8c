"""A sweep's tasks on a Dask cluster that runs already (an optional extra).

A task is a schema under an engine; a worker of the cluster keeps one process with an engine for
each of its threads (sweep_workers.py), so that a vocabulary is loaded once. Where a worker is
killed Dask hands its tasks to others; a task under which workers are killed again and again is a
result.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from llgbench.errors import InputError, UnavailableError
from llgbench.inputs.case import Case
from llgbench.peers import grammars, sweep_workers
from llgbench.peers.results import CaseResult
from llgbench.peers.sweep_workers import Task

_MISSING = "--scheduler requires Dask; run: pip install distributed, or leave --scheduler out"
# To reach a scheduler that is there takes a moment.
_CONNECT_S = 10


def results(address: str, tasks: Sequence[Task]) -> Iterator[tuple[Case, CaseResult]]:
    """Yield the result of each task, as they come.

    Args:
        address: of the scheduler, such as ``tcp://127.0.0.1:8786``.
        tasks: what to do.

    Raises:
        UnavailableError: Dask is not installed.
        InputError: no scheduler answers there, or llgbench is not what its workers have.
    """
    try:
        dask: Any = importlib.import_module("distributed")
    except ImportError:
        raise UnavailableError(_MISSING) from None
    try:
        client = dask.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as why:
        raise InputError(f"--scheduler {address}: no Dask scheduler answers ({why})") from None
    with client:
        # A function of the same task twice would be the same future to Dask.
        futures = {client.submit(sweep_workers.do, task, pure=False): task for task in tasks}
        try:
            for future in dask.as_completed(futures, loop=client.loop):
                task = futures.pop(future)
                yield task.case, _result(dask, future, task)
                future.release()
        finally:
            client.cancel(list(futures))
            client.run(sweep_workers.close)


def _result(dask: Any, future: Any, task: Task) -> CaseResult:
    try:
        found: CaseResult = future.result()
    except dask.KilledWorker:
        s = task.setup
        label = grammars.white_space_of(task.case, s.white_space)
        reason = "each worker that judged it was killed, as often as Dask tries"
        return CaseResult(task.case.name, s.vocab, s.engine, label, "crashed", reason)
    except ImportError as why:
        raise InputError(f"--scheduler: its workers cannot import llgbench ({why})") from None
    return found
