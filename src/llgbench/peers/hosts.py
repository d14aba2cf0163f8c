"""The other end of host.py: an engine in a process of its own, asked case by case."""

from __future__ import annotations

import os
import select
import subprocess
from types import TracebackType
from typing import Self, TypeVar

from llgbench import files, processes
from llgbench.inputs.case import Case
from llgbench.measure import messages
from llgbench.peers import grammars
from llgbench.peers.host import Answer, Loaded, Setup, Task, wall_limit_s
from llgbench.peers.results import CaseResult, Outcome

T = TypeVar("T")

# To open a vocabulary and hand it to the slowest engine takes some seconds.
_LOAD_S = 300.0
_GRACE_S = 60.0


class Host:
    """An engine on a vocabulary; a context manager.

    Attributes:
        ready: what the engine is; None until the first case, or where it cannot be loaded.
    """

    def __init__(self, setup: Setup) -> None:
        """Say what is loaded; the process begins with the first case."""
        self.setup = setup
        self.ready: Loaded | None = None
        self._child: processes.Child | None = None
        self._refusal = ""

    def load(self) -> str:
        """Load the engine, unless it is; return why it cannot be, empty where it can."""
        if self._child is None and not self._refusal:
            self._start()
        return self._refusal

    def run(self, case: Case, rounds: int) -> CaseResult:
        """Do a case; whatever becomes of the engine, there is a result."""
        if self.load():
            return self._none(case, "not available", self._refusal)
        # The process of a case has its limit; this one is for the host itself.
        seconds = wall_limit_s(self.setup.limits.seconds, rounds) + _GRACE_S
        answer = self._ask(Task(case, rounds), Answer, seconds)
        if answer is not None and answer.result is None and not answer.alone:
            answer = self._ask(Task(case, rounds), Answer, seconds)
        if answer is None:
            return self._none(case, "crashed", self._last_words())
        return answer.result or self._none(case, answer.outcome, answer.reason)

    def _none(self, case: Case, outcome: Outcome, reason: str) -> CaseResult:
        s = self.setup
        label = grammars.white_space_of(case, s.white_space)
        release = "" if self.ready is None else self.ready.release
        return CaseResult(case.name, s.vocab, s.engine, label, outcome, reason, release)

    def _start(self) -> None:
        # OpenBLAS would start threads, and a process with threads is not to be forked.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        self._child = processes.Child(
            [*processes.python("llgbench.peers.host"), str(os.getpid())],
            stdin=subprocess.PIPE, env=environment,
        )  # fmt: skip
        answer = self._ask(self.setup, Loaded, _LOAD_S)
        if answer is None:
            self._refusal = f"it does not survive being loaded: {self._last_words()}"
        elif answer.refusal:
            self._refusal = answer.refusal
            self.close()
        else:
            self.ready = answer

    def _ask(self, message: object, kind: type[T], seconds: float) -> T | None:
        """Send a message and return the answer; None where the process does not give one."""
        assert self._child is not None
        process = self._child.process
        assert process.stdin is not None
        assert process.stdout is not None
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        try:
            process.stdin.write(messages.encode(message))
            process.stdin.flush()
            if not poll.poll(1000 * seconds):
                self._child.kill()
            return messages.read(process.stdout, kind)
        except OSError:
            return None

    def _last_words(self) -> str:
        """Return why the process is gone, and forget it: the next case has another."""
        assert self._child is not None
        status = self._child.process.wait()
        said = self._child.stderr
        self.close()
        return files.one_line(processes.Ended(status, b"", said).words)

    def close(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            child.close()
            if child.process.stdout is not None:
                child.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
