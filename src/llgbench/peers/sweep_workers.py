"""Who does a sweep's tasks: one process with an engine per thread, whoever runs the threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from llgbench.inputs.case import Case
from llgbench.peers.host import Setup
from llgbench.peers.hosts import Host
from llgbench.peers.results import CaseResult


@dataclass(frozen=True)
class Task:
    """A schema under an engine.

    Attributes:
        setup: the engine, and on what.
        case: the schema with its instances.
    """

    setup: Setup
    case: Case


_own = threading.local()
_lock = threading.Lock()
_all: set[Host] = set()


def do(task: Task) -> CaseResult:
    """Judge a schema, in this thread's process; a thread that gets another engine changes it."""
    host: Host | None = getattr(_own, "host", None)
    if host is None or host not in _all or host.setup != task.setup:
        if host is not None:
            _end(host)
        host = _own.host = Host(task.setup)
        with _lock:
            _all.add(host)
    return host.run(task.case, 0)


def close() -> None:
    """End the processes of all threads."""
    for host in list(_all):
        _end(host)


def _end(host: Host) -> None:
    with _lock:
        _all.discard(host)
    host.close()
