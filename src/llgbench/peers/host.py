"""The process that loads an engine, and forks those that do the cases.

Started by :class:`llgbench.peers.hosts.Host` as ``python -m llgbench.peers.host PARENT``. Loading a
vocabulary takes as long as many cases do; so it is done once, before the fork. A case that is timed
has a fork of its own. Those that are judged alone take turns in one, since a fork costs what
judging does; where it crashes or runs out of memory, the case is judged again in a new one, so that
nothing is said of a case that another may have caused.
"""

from __future__ import annotations

import gc
import mmap
import os
import resource
import signal
import struct
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import IO, NoReturn

import msgspec

from llgbench import isolated, processes
from llgbench.engines import registry
from llgbench.errors import LlgbenchError
from llgbench.files import one_line
from llgbench.inputs.case import Case
from llgbench.isolated import Limits
from llgbench.llama.vocab import open_vocab
from llgbench.measure import messages
from llgbench.peers.adapter import Vocabulary, load
from llgbench.peers.case import Bench
from llgbench.peers.grammars import WhiteSpace
from llgbench.peers.judge import Judge
from llgbench.peers.results import CaseResult, Outcome


class Setup(msgspec.Struct, frozen=True):
    """What a host loads.

    Attributes:
        engine: its specification.
        vocab: the vocabulary's name or path.
        white_space: of the configuration.
        base: llguidance's engine, which ratios are over.
        limits: of each case.
        lark: whether a reference for Lark is needed.
        empty: whether to measure the adapter's own step.
    """

    engine: str
    vocab: str
    white_space: WhiteSpace
    base: str
    limits: Limits
    lark: bool = False
    empty: bool = False


class Loaded(msgspec.Struct, frozen=True):
    """What became of loading the engine.

    Attributes:
        release: what it is.
        read_ns: what the clocks read in an empty step of its adapter; NaN where not asked for.
        wall_ns: what such a step takes in all.
        instructions: how many such a step executes.
        refusal: why it or the vocabulary cannot be loaded; empty where they are.
    """

    release: str = ""
    read_ns: float = float("nan")
    wall_ns: float = float("nan")
    instructions: float = float("nan")
    refusal: str = ""


class Task(msgspec.Struct, frozen=True):
    """A case to do; with 0 rounds it is judged and not timed."""

    case: Case
    rounds: int


class Answer(msgspec.Struct, frozen=True):
    """What became of a case.

    Attributes:
        result: of a case that came to its end.
        outcome: where its process did not.
        reason: one line.
        alone: whether the process had done nothing before it.
    """

    result: CaseResult | None = None
    outcome: Outcome = "crashed"
    reason: str = ""
    alone: bool = True


# How many cases a fork judges.
_CASES = 64
_MORE = 3  # its exit status where there may be more


def main() -> None:
    """Serve cases until there are no more."""
    answers = os.fdopen(os.dup(1), "wb")
    isolated.enter(int(sys.argv[1]))
    setup = messages.read(sys.stdin.buffer, Setup)
    if setup is None:
        return
    try:
        bench = _bench(setup)
        empty = bench.engine.peer.empty_step() if setup.empty else None
        counted = bench.engine.peer.empty_instructions() if setup.empty else float("nan")
    except LlgbenchError as error:
        _answer(answers, Loaded(refusal=one_line(error)))
        return
    release = bench.engine.peer.release
    loaded = Loaded(release)
    if empty is not None:
        loaded = Loaded(release, empty.read_ns, empty.wall_ns, counted)
    kinds = (True, False) if setup.lark else (True,)
    judges = {json: Judge(bench.vocab, json=json) for json in kinds}
    _answer(answers, loaded)
    gc.freeze()  # a fork's collections leave alone, and so uncopied, what is here
    with processes.temporary_folder() as folder:
        forks = _Forks(bench, judges, setup.limits, answers, folder / "stderr")
        while forks.run():
            pass


def _bench(setup: Setup) -> Bench:
    vocab = open_vocab(setup.vocab)

    def held(name: str, *, exact: bool = False) -> Vocabulary:
        return Vocabulary(load(name, vocab, setup.white_space, exact=exact), vocab)

    base = held(setup.base)
    engine = base if setup.engine == setup.base else held(setup.engine)
    exact = held(setup.base, exact=True)
    fallback, option = None, None
    if setup.lark and registry.entries()[registry.FALLBACK].path is not None:
        option = registry.get(registry.FALLBACK).fallback_option
        fallback = held(registry.FALLBACK, exact=True) if option else None
    return Bench(vocab, setup.white_space, engine, base, exact, fallback, option)


def _answer(answers: IO[bytes], message: object) -> None:
    answers.write(messages.encode(message))
    answers.flush()


class _Forks:
    """One fork after another; each reads cases from this process's stdin and answers them."""

    def __init__(
        self, bench: Bench, judges: dict[bool, Judge], limits: Limits, answers: IO[bytes],
        words: Path,
    ) -> None:  # fmt: skip
        self._bench, self._judges, self._limits = bench, judges, limits
        self._answers, self._words = answers, words
        # What a fork tells of itself even where it dies: how many cases it has begun, and the CPU
        # time that its results have.
        self._told = mmap.mmap(-1, _TOLD.size)
        self._owed_s = 0.0

    def run(self) -> bool:
        """Fork, and wait for its end; return whether there may be more cases."""
        mark = time.process_time()
        self._told[:] = _TOLD.pack(0, 0.0)
        host = os.getpid()
        child = os.fork()
        if child == 0:
            self._serve(host)
        _, status, usage = os.wait4(child, 0)
        ended = os.waitstatus_to_exitcode(status)
        begun, counted_s = _TOLD.unpack(self._told)
        # A fork and its end are on the next one's account; what it had done of a case under
        # which it died is not.
        self._owed_s = time.process_time() - mark
        if ended in (0, _MORE):
            self._owed_s += max(usage.ru_utime + usage.ru_stime - counted_s, 0.0)
        else:
            said = self._words.read_text(errors="replace") if self._words.exists() else ""
            _answer(self._answers, self._dead(ended, said, usage, alone=begun == 1))
        return ended != 0

    def _serve(self, host: int) -> NoReturn:
        """Do cases; this is the fork."""
        status = 1
        try:
            processes.die_with_parent(host)
            with self._words.open("wb") as file:
                os.dup2(file.fileno(), 2)
            isolated.limit_memory(self._limits.memory_mib)
            status = self._cases()
        except LlgbenchError as error:
            print(one_line(error), file=sys.stderr)
        except MemoryError:
            print("out of memory", file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)  # nothing of the host's is to be closed twice

    def _cases(self) -> int:
        counted_s = 0.0
        for number in range(1, _CASES + 1):
            task = messages.read(sys.stdin.buffer, Task)
            if task is None:
                return 0
            self._told[:] = _TOLD.pack(number, counted_s)
            begin = time.monotonic()
            # Nothing handles these signals, so that the kernel ends a library that hangs. What is
            # judged beside others is limited in CPU time, which does not depend on them.
            seconds = self._limits.seconds
            signal.setitimer(signal.ITIMER_REAL, wall_limit_s(seconds, task.rounds))
            signal.setitimer(signal.ITIMER_PROF, 0 if task.rounds else seconds)
            judge = self._judges[task.case.kind == "json_schema"]
            found = self._bench.run(task.case, judge, task.rounds)
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            now = time.process_time()
            found = replace(
                found, seconds=time.monotonic() - begin, cpu_s=now - counted_s + self._owed_s
            )
            self._owed_s, counted_s = 0.0, now
            self._told[:] = _TOLD.pack(number, counted_s)
            _answer(self._answers, Answer(found))
            if task.rounds:
                break
        return _MORE

    def _dead(
        self, status: int, said: str, usage: resource.struct_rusage, *, alone: bool
    ) -> Answer:
        limits = self._limits
        if status == -signal.SIGPROF:
            return Answer(None, "over its time", f"more than {limits.seconds:g} s of CPU time")
        if status == -signal.SIGALRM:
            return Answer(None, "over its time", f"more than {limits.seconds:g} s")
        if _is_memory(said, usage, limits):
            return Answer(None, "over its memory", f"more than {limits.memory_mib} MiB", alone)
        words = processes.Ended(status, b"", said).words
        return Answer(None, "crashed", one_line(words), alone)


def wall_limit_s(seconds: float, rounds: int) -> float:
    """Return how long a case may take: what is judged beside others waits for them, too."""
    return seconds if rounds else 10 * seconds


_TOLD = struct.Struct("<Qd")


def _is_memory(said: str, usage: resource.struct_rusage, limits: Limits) -> bool:
    """Whether a process died of its limit: it says so, or it had come near and says nothing."""
    if any(word in said for word in ("bad_alloc", "out of memory", "memory allocation of")):
        return True
    return usage.ru_maxrss >> 10 > limits.memory_mib * 9 // 10


if __name__ == "__main__":
    main()
