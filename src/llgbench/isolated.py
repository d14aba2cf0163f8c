"""One call in a process of its own, for what may abort, hang or exhaust memory.

``isolated.call(function, argument, …)`` is ``function(argument, …)``, in a new process. Arguments
and result cross as msgpack, decoded by the function's own type hints. What the function raises of
:mod:`llgbench.errors` is raised here; where the process does not survive, its last words are.
"""

from __future__ import annotations

import importlib
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar, get_type_hints

import msgspec

from llgbench import crossing, errors, processes
from llgbench.errors import LlgbenchError, ProcessError

P = ParamSpec("P")
R = TypeVar("R")

# A call that is slower than this hangs.
SECONDS = 600.0


@dataclass(frozen=True)
class Limits:
    """What a process may take; recorded with what it measures.

    Attributes:
        seconds: of a call, or of one step where a process says what it is doing.
        memory_mib: what it may write to (getrlimit(2), RLIMIT_DATA).
    """

    seconds: float
    memory_mib: int

    @classmethod
    def default(cls, seconds: float) -> Limits:
        """Return a time, and three quarters of the machine's memory."""
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
        return cls(seconds, physical * 3 // 4)


class _Raised(msgspec.Struct, tag=True):
    kind: str
    message: str


class _Returned(msgspec.Struct, tag=True):
    value: msgspec.Raw


def call(function: Callable[P, R], *arguments: P.args, **_: P.kwargs) -> R:
    """Call a function of a module by position, in a new process, and return its result.

    Raises:
        LlgbenchError: as call_within.
    """
    return call_within(Limits.default(SECONDS), function, *arguments, **_)


def call_within(limits: Limits, function: Callable[P, R], *arguments: P.args, **_: P.kwargs) -> R:
    """Call a function as :func:`call` does, within other limits.

    Raises:
        LlgbenchError: what the function raises; of its own class where that takes one message.
        ProcessError: the process does not survive; the message has its last words.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    command = [
        *processes.python("llgbench.isolated"),
        str(os.getpid()),
        str(limits.memory_mib),
        name,
    ]
    with processes.temporary_folder() as folder:
        ask, answer = folder / "arguments", folder / "answer"
        ask.write_bytes(crossing.encode(list(arguments)))
        done = processes.run(
            [*command, ask, answer], stdout=subprocess.DEVNULL, seconds=limits.seconds
        )
        if not answer.is_file():
            raise ProcessError(done.words)
        found = msgspec.msgpack.decode(answer.read_bytes(), type=_Raised | _Returned)
    if isinstance(found, _Returned):
        kind = get_type_hints(function)["return"]
        result: R = crossing.decode(found.value, kind)
        return result
    raise _error(found)


def _error(raised: _Raised) -> LlgbenchError:
    kind = getattr(errors, raised.kind, LlgbenchError)
    error = kind.__new__(kind)  # some build their message from several arguments
    Exception.__init__(error, raised.message)
    found: LlgbenchError = error
    return found


def _serve(name: str, ask: Path, answer: Path) -> None:
    module, _, qualified = name.partition(":")
    function = getattr(importlib.import_module(module), qualified)
    hints = get_type_hints(function)
    kinds = [kind for parameter, kind in hints.items() if parameter != "return"]
    raw = crossing.decode(ask.read_bytes(), list[msgspec.Raw])
    arguments = [crossing.decode(one, kind) for one, kind in zip(raw, kinds, strict=True)]
    try:
        found = _Returned(msgspec.Raw(crossing.encode(function(*arguments))))
    except LlgbenchError as error:
        found = _Raised(type(error).__name__, str(error))  # type: ignore[assignment]
    part = answer.with_suffix(".part")
    part.write_bytes(crossing.encode(found))
    part.replace(answer)


def enter(parent: int) -> None:
    """Make this process one that may die: it ends with its parent, and keeps its last words."""

    processes.die_with_parent(parent)
    os.dup2(2, 1)  # what a library prints is no result
    processes.keeps_last_words = True
    # ggml would start a debugger for its backtrace; its one line before that says enough.
    os.environ["GGML_NO_BACKTRACE"] = "1"


def limit_memory(mib: int) -> None:
    """Limit what this process may write to; see getrlimit(2), RLIMIT_DATA."""
    resource.setrlimit(resource.RLIMIT_DATA, (mib << 20, mib << 20))


if __name__ == "__main__":
    enter(int(sys.argv[1]))
    limit_memory(int(sys.argv[2]))
    _serve(sys.argv[3], Path(sys.argv[4]), Path(sys.argv[5]))
