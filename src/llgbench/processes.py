"""Processes: what a command starts ends with the command, and its last words are kept.

A child is registered with a keeper (keeper.py), which ends it with all its descendants where this
process is gone without having done so itself, by SIGKILL for instance. Temporary folders are
removed in the same way. A child's temporary files lie in such a folder too.
"""

from __future__ import annotations

import atexit
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import IO, Any

from llgbench import keeper
from llgbench.errors import ProcessError
from llgbench.last_words import last_words

# A child that was asked to end is killed after this time.
_GRACE_S = 3.0

# What is kept of a child's standard error: its end, where the last words are.
_KEPT = 64 << 10


@dataclass(frozen=True)
class Ended:
    """A child that has ended.

    Attributes:
        status: its exit status; minus the signal that killed it.
        stdout: what it wrote; empty where that went elsewhere.
        stderr: the end of what it wrote.
        limit: the limit that ended it, in words; None where it ended by itself.
    """

    status: int
    stdout: bytes
    stderr: str
    limit: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.status == 0 and self.limit is None

    @property
    def words(self) -> str:
        """Its last words on one line, and how it ended where they do not say."""
        said = last_words(self.stderr)
        if self.limit is not None:
            return self.limit
        if self.status < 0:
            how = f"killed by {_signal_name(-self.status)}"
            return f"{said} ({how})" if said else how
        return said or f"ended with status {self.status}"


class Child:
    """A process that is running; a context manager that ends it with all its descendants.

    Attributes:
        process: with its pipes.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = subprocess.PIPE,
        stderr: int | IO[bytes] | None = subprocess.PIPE,
        memory_mib: int | None = None,
    ) -> None:
        """Start a process.

        Args:
            command: the program and its arguments; no shell is involved.
            cwd: where it runs.
            env: its whole environment; default: this process's.
            stdin: as in subprocess.Popen; by default there is nothing to read.
            stdout: as in subprocess.Popen.
            stderr: the same; its end is kept where it is a pipe.
            memory_mib: the most memory that it may write to (RLIMIT_DATA), its children each.

        Raises:
            ProcessError: the program cannot be started, or this process is being ended.
        """
        if _ending.is_set():
            raise ProcessError("the command is being ended")
        environment = dict(os.environ if env is None else env)
        environment["TMPDIR"] = str(_scratch())
        try:
            # A group of its own: what the terminal sends reaches this process alone, which passes
            # it on.
            self.process = subprocess.Popen(
                command, cwd=cwd, env=environment, stdin=stdin, stdout=stdout, stderr=stderr,
                process_group=0,
            )  # fmt: skip
        except OSError as why:
            raise ProcessError(f"cannot start {os.fspath(command[0])}: {why.strerror}") from None
        _keeper().tell(f"+p{self.process.pid}")
        _children.add(self)
        if memory_mib is not None:
            with suppress(OSError, ValueError):
                limit = memory_mib << 20
                resource.prlimit(self.process.pid, resource.RLIMIT_DATA, (limit, limit))
        self._tail = _Reader(self.process.stderr, _KEPT) if stderr == subprocess.PIPE else None

    @property
    def stderr(self) -> str:
        """The end of what it has written to standard error so far, where that is a pipe."""
        return "" if self._tail is None else self._tail.data.decode(errors="replace")

    def end(self, wait_s: float = 0.0) -> int:
        """End it with all its descendants, unless it ends by itself; return its status.

        Args:
            wait_s: how long it may still take to end by itself.
        """
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(wait_s)
        if self.process.poll() is None:
            with suppress(OSError):
                os.killpg(self.process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_GRACE_S)
        self.kill()
        return self.process.wait()

    def kill(self) -> None:
        """Kill it with all its descendants at once."""
        if self.process.poll() is None:
            keeper.kill({self.process.pid})
        # Descendants outlive a parent that has ended; they are in its group unless they left it.
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it and let go of its pipes; a second call does nothing."""
        if self not in _children:
            return
        self.end()
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        if self._tail is not None:
            self._tail.close()
        _children.discard(self)
        _keeper().tell(f"-p{self.process.pid}")

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] | None = subprocess.PIPE,
    stderr: int | IO[bytes] | None = subprocess.PIPE,
    seconds: float | None = None,
    memory_mib: int | None = None,
) -> Ended:
    """Run a command to its end; see :class:`Child` for the arguments.

    Args:
        seconds: after which it is ended.

    Raises:
        ProcessError: the program cannot be started.
    """
    with Child(
        command, cwd=cwd, env=env, stdout=stdout, stderr=stderr, memory_mib=memory_mib
    ) as child:
        timer = threading.Timer(seconds, child.kill) if seconds is not None else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        out = None if child.process.stdout is None else _Reader(child.process.stdout)
        status = child.process.wait()
        late = False
        if timer is not None:
            late = not timer.is_alive()
            timer.cancel()
        child.close()
        limit = f"ended after its time limit of {seconds:g} s" if late else None
        return Ended(status, b"" if out is None else out.close(), child.stderr, limit)


def python(module: str) -> list[str]:
    """Return the command that runs a module of this package in this interpreter.

    Without -P the working directory would come first on the module path, and a user's ``json.py``
    or ``copy.so`` would be taken for the standard library's.
    """
    return [sys.executable, "-P", "-m", module]


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Return a folder for the time of the block, which does not outlive this process either."""
    folder = Path(tempfile.mkdtemp(dir=_scratch()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def handle_signals() -> None:
    """Make SIGTERM and SIGHUP what SIGINT is: children end, then KeyboardInterrupt is raised."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A command started by nohup, or in the background of a script, ignores some on purpose.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


# Whether what this process says on stderr is kept, and shown where it dies.
keeps_last_words = False


def die_with_parent(parent: int) -> None:
    """End this process, a child of ``parent``, when that is gone; and leave no core file."""
    import ctypes

    pr_set_pdeathsig = 1  # linux/prctl.h
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before the call
        os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


_children: set[Child] = set()
_ending = threading.Event()


def _interrupt(number: int, _frame: FrameType | None) -> None:
    # Threads that wait for a child return when it ends, and start none afterwards.
    _ending.set()
    for child in list(_children):
        child.kill()
    raise KeyboardInterrupt(_signal_name(number))


class _Keeper:
    """The other end of keeper.py."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def tell(self, line: str) -> None:
        pipe = self._process.stdin
        # A keeper that was killed is missed only where this process is killed as well.
        with self._lock, suppress(OSError):
            if pipe is not None:
                pipe.write(os.fsencode(line) + b"\n")
                pipe.flush()

    def close(self) -> None:
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        self._process.wait()


@cache
def _keeper() -> _Keeper:
    found = _Keeper()
    atexit.register(found.close)
    return found


@cache
def _scratch() -> Path:
    """Return the folder of all temporary files of this process and its children."""
    guard = _keeper()  # where there is none, no folder is made that nobody would remove
    folder = Path(tempfile.mkdtemp(prefix="llgbench-"))
    guard.tell(f"+f{folder}")
    return folder


class _Reader:
    """Reads a pipe to its end in a thread, so that its writer never waits."""

    def __init__(self, pipe: Any, most: int | None = None) -> None:
        """Begin; of more than ``most`` bytes the last are kept."""
        self._pipe, self._most = pipe, most
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            while chunk := self._pipe.read1(1 << 16):
                self._kept += chunk
                if self._most is not None:
                    del self._kept[: -self._most]

    @property
    def data(self) -> bytes:
        return bytes(self._kept)

    def close(self) -> bytes:
        """Return what was written; wait for the end of it, but not for a descendant's."""
        # A descendant that left the group (a compiler's server) may hold the pipe open for ever.
        self._thread.join(1.0)
        if not self._thread.is_alive():
            self._pipe.close()
        return self.data


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
