"""The supervisor's side of a worker: asked for a group, heard, and its last words where it dies."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence

from llgbench import processes
from llgbench.inputs import gguf_faults
from llgbench.inputs.case import Case
from llgbench.inputs.catalogue import vocab_path
from llgbench.inputs.configuration import Configuration
from llgbench.isolated import Limits
from llgbench.measure import messages
from llgbench.measure.messages import (
    Answer,
    Doing,
    Group,
    GroupEnd,
    Setup,
    Stage,
    VocabRefused,
)

# How often a worker that says nothing is looked at.
_LOOK_S = 0.2

# A worker that closes its answers is dying; it is given this long to say why.
_LAST_WORDS_S = 10.0


class WorkerLost(Exception):
    """A worker has ended without having finished."""

    def __init__(self, doing: Doing, configuration: Configuration | None, reason: str) -> None:
        super().__init__(reason)
        self.doing, self.configuration, self.reason = doing, configuration, reason


class WorkerProcess:
    """One worker process."""

    def __init__(self, vocab: str, limits: Limits) -> None:
        self._vocab, self._limits = vocab, limits
        self._folder = processes.temporary_folder()
        path = self._folder.__enter__() / "stage"
        self._stage = Stage.create(path)
        self._child = processes.Child(
            [*processes.python("llgbench.measure.worker"), str(os.getpid())],
            env={k: v for k, v in os.environ.items() if not k.endswith("_BACKTRACE")},
            stdin=subprocess.PIPE,
        )
        self._buffer = bytearray()
        self._late = False
        self._send(Setup(vocab, str(path), limits.memory_mib))

    def ask(self, task: Group) -> None:
        """Hand over a group."""
        self._send(task)

    def answers(self, asked: Sequence[Configuration], subject: Case) -> Iterator[Answer]:
        """Yield the answers to a group up to its end.

        Raises:
            WorkerLost: the worker ends before that, or is ended by a limit.
        """
        while True:
            answer = self._next()
            if answer is None:
                raise self._lost(asked, subject)
            yield answer
            if isinstance(answer, GroupEnd | VocabRefused):
                return

    def close(self) -> None:
        """End the process."""
        stdout = self._child.process.stdout
        self._child.close()
        if stdout is not None:
            stdout.close()
        self._stage.close()
        self._folder.__exit__(None, None, None)

    def _send(self, message: Setup | Group) -> None:
        pipe = self._child.process.stdin
        try:
            assert pipe is not None
            pipe.write(messages.encode(message))
            pipe.flush()
        except OSError:
            pass  # it has ended; the answers say so

    def _next(self) -> Answer | None:
        """Return the next answer; None where there will be none."""
        head = self._take(messages.LENGTH.size)
        if head is None:
            return None
        data = self._take(*messages.LENGTH.unpack(head))
        return None if data is None else messages.decode_answer(data)

    def _take(self, n: int) -> bytes | None:
        """Return ``n`` bytes of the answers; None where they end, or a step takes too long."""
        pipe = self._child.process.stdout
        assert pipe is not None
        since, count = time.monotonic(), self._stage.get()[0]
        while len(self._buffer) < n:
            readable, _, _ = select.select([pipe], [], [], _LOOK_S)
            if readable:
                chunk = os.read(pipe.fileno(), 1 << 20)
                if not chunk:
                    return None
                self._buffer += chunk
            now, current = time.monotonic(), self._stage.get()[0]
            if current != count:
                since, count = now, current
            elif now - since > self._limits.seconds:
                self._child.kill()
                self._late = True
                return None
        data = bytes(self._buffer[:n])
        del self._buffer[:n]
        return data

    def _lost(self, asked: Sequence[Configuration], subject: Case) -> WorkerLost:
        _, doing, at, text = self._stage.get()
        status = self._child.end(wait_s=0.0 if self._late else _LAST_WORDS_S)
        configuration = asked[at] if doing in OF_ONE and at < len(asked) else None
        name = subject.texts[text].name if text < len(subject.texts) else ""
        what = _WHAT[doing].format(name)
        if self._late:
            words = f"no result within {self._limits.seconds:g} s (--time-limit)"
        else:
            ended = processes.Ended(status, b"", self._child.stderr)
            words = ended.words
            if _out_of_memory(self._child.stderr):
                words += f"; the limit is {self._limits.memory_mib} MiB (--memory-limit)"
        if doing in (Doing.OPENING, Doing.TEXTS):
            known = gguf_faults.diagnose(vocab_path(self._vocab))
            words = known or words
        return WorkerLost(doing, configuration, f"{what}: {words}")


# What is done for one configuration.
OF_ONE = (Doing.TOKENIZER, Doing.JUDGING, Doing.REPLAYING)

# What is put before a worker's last words.
_WHAT = {
    Doing.STARTING: "the worker process",
    Doing.OPENING: "llama.cpp",
    Doing.TEXTS: "llama.cpp",
    Doing.TOKENIZER: "while the tokenizer was built",
    Doing.JUDGING: "while {!r} was judged",
    Doing.REPLAYING: "while {!r} was replayed",
    Doing.IDLE: "the worker process",
}


def _out_of_memory(stderr: str) -> bool:
    return any(word in stderr for word in ("memory allocation of", "bad_alloc", "MemoryError"))
