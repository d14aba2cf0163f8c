"""The process that loads an engine, and forks one for each case.

Started by :class:`llgbench.peers.hosts.Host` as ``python -m llgbench.peers.host PARENT``. Loading a
vocabulary takes as long as many cases do; so it is done once, before the fork, and every case still
has a process of its own, with a limit of time and of memory, which may crash, hang or abort alone.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import sys
import time
from dataclasses import replace
from typing import IO

import msgspec

from llgbench import crossing, isolated, processes
from llgbench.engines import registry
from llgbench.errors import LlgbenchError
from llgbench.files import one_line
from llgbench.inputs.case import Case
from llgbench.isolated import Limits
from llgbench.llama.vocab import open_vocab
from llgbench.measure import messages
from llgbench.peers import grammars
from llgbench.peers.adapter import Vocabulary, load
from llgbench.peers.case import Bench
from llgbench.peers.grammars import WhiteSpace
from llgbench.peers.judge import Judge
from llgbench.peers.results import CaseResult


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
        refusal: why it or the vocabulary cannot be loaded; empty where they are.
    """

    release: str = ""
    read_ns: float = float("nan")
    wall_ns: float = float("nan")
    refusal: str = ""


class Task(msgspec.Struct, frozen=True):
    """A case to do; with 0 rounds it is judged and not timed."""

    case: Case
    rounds: int


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
    except LlgbenchError as error:
        _answer(answers, Loaded(refusal=one_line(error)))
        return
    release = bench.engine.peer.release
    loaded = Loaded(release) if empty is None else Loaded(release, empty.read_ns, empty.wall_ns)
    _answer(answers, loaded)
    kinds = (True, False) if setup.lark else (True,)
    judges = {json: Judge(bench.vocab, json=json) for json in kinds}
    while (task := messages.read(sys.stdin.buffer, Task)) is not None:
        judge = judges[task.case.kind == "json_schema"]
        _answer(answers, _in_a_fork(bench, judge, task, setup.limits))


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


def _in_a_fork(bench: Bench, judge: Judge, task: Task, limits: Limits) -> CaseResult:
    begin = time.monotonic()
    with processes.temporary_folder() as folder:
        words = folder / "stderr"
        reader, writer = os.pipe()
        host = os.getpid()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(reader)
                processes.die_with_parent(host)
                with words.open("wb") as file:
                    os.dup2(file.fileno(), 2)
                isolated.limit_memory(limits.memory_mib)
                _send(writer, crossing.encode(bench.run(task.case, judge, task.rounds)))
                status = 0
            except LlgbenchError as error:
                print(one_line(error), file=sys.stderr)
            except MemoryError:
                print("out of memory", file=sys.stderr)
            finally:
                sys.stderr.flush()
                os._exit(status)  # nothing of the host's is to be closed twice
        os.close(writer)
        data, late = _receive(reader, limits.seconds)
        if late:
            os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
        said = words.read_text(errors="replace") if words.exists() else ""
    failed = CaseResult(
        task.case.name, bench.vocab.name, bench.engine.peer.name,
        grammars.white_space_of(task.case, bench.white_space), "crashed",
        release=bench.engine.peer.release, seconds=time.monotonic() - begin,
    )  # fmt: skip
    if late:
        return replace(failed, outcome="over its time", reason=f"more than {limits.seconds:g} s")
    if os.waitstatus_to_exitcode(status) == 0:
        return replace(crossing.decode(data, CaseResult), seconds=time.monotonic() - begin)
    ended = processes.Ended(os.waitstatus_to_exitcode(status), b"", said)
    if _is_memory(said, usage, limits):
        return replace(
            failed, outcome="over its memory", reason=f"more than {limits.memory_mib} MiB"
        )
    return replace(failed, reason=one_line(ended.words))


def _is_memory(said: str, usage: resource.struct_rusage, limits: Limits) -> bool:
    """Whether a process died of its limit: it says so, or it had come near and says nothing."""
    if any(word in said for word in ("bad_alloc", "out of memory", "memory allocation of")):
        return True
    return usage.ru_maxrss >> 10 > limits.memory_mib * 9 // 10


def _send(writer: int, data: bytes) -> None:
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(data)


def _receive(reader: int, seconds: float) -> tuple[bytes, bool]:
    """Return what comes through a pipe, and whether its time ran out before its end."""
    end = time.monotonic() + seconds
    data = bytearray()
    with os.fdopen(reader, "rb", buffering=0) as pipe, selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while (left := end - time.monotonic()) > 0:
            if selector.select(left):
                chunk = pipe.read(1 << 20)
                if not chunk:
                    return bytes(data), False
                data += chunk
    return b"", True


if __name__ == "__main__":
    main()
