"""Counting by callgrind: instructions instead of time, call by call.

What runs under callgrind is a small program of our own (csrc/counter.c), compiled at its first use
and kept in the cache. It has no Python and no llama.cpp in it, so it does not matter how those were
compiled: valgrind does not know AVX-512. It switches collection on inside llguidance's calls alone,
and asks for a dump after each. What differs between two engines that run the same code is taken
out: the hash seeds (csrc/seed.c), and what the allocator costs (csrc/steady.c).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from llgbench import paths, processes
from llgbench.errors import CompareError, LlgbenchError, UnavailableError
from llgbench.measure import stubs
from llgbench.measure.counter import Recorded

_CSRC = Path(__file__).parents[1] / "csrc"
_SOURCES = tuple(_CSRC / f"{name}.c" for name in ("counter", "count", "engine", "seed", "steady"))
_HEADERS = tuple(_CSRC / f"{name}.h" for name in ("llgbench", "internal"))
# -fno-builtin: else calloc's malloc and memset become the calloc they are in.
# -rdynamic: engines find malloc and getrandom in the program.
_FLAGS = ("-std=gnu11", "-O2", "-fno-builtin", "-rdynamic", "-DLB_UNDER_CALLGRIND")

# All that a counted process sees: valgrind's options, or RUST_BACKTRACE, would change its counts.
_PASSED = ("PATH", "LD_LIBRARY_PATH", "VALGRIND_LIB")

# The longest curve takes minutes; what takes longer than this hangs.
LIMIT_S = 3600.0

_TRIGGER = re.compile(r"^desc: Trigger: Client Request: (.+)$", re.MULTILINE)
# A function (fn) or a callee (cfn); the hash that Rust puts behind a name changes with every build.
_FUNCTION = re.compile(r"^(c?)fn=\((\d+)\)(?: (.*))?$")
_HASH = re.compile(r"::h[0-9a-f]{16}$|'\d+$")
_POSITION = frozenset("0123456789+-*")
_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)
_UNKNOWN = re.compile(r"unhandled instruction bytes: ((?:0x[0-9A-Fa-f]+ ?)+)")
_PLACE = re.compile(r"\((?:in|by) (/[^)]*)\)")


@dataclass(frozen=True)
class Dump:
    """What was collected since the dump before.

    Attributes:
        name: as the job's labels and csrc/count.c give it.
        instructions: read, user space.
        functions: the instructions of each function by itself, where asked for and its name is
            known: most libraries that are published have none.
    """

    name: str
    instructions: int
    functions: Mapping[str, int] = field(default_factory=dict)


def missing() -> str | None:
    """Return why instructions cannot be counted here; None where they can."""
    if shutil.which("valgrind") is None:
        return "counting requires valgrind, which is not installed (apt-get install valgrind)"
    try:
        _program()
    except LlgbenchError as error:
        return str(error)
    return None


def require() -> None:
    """Raise where instructions cannot be counted.

    Raises:
        UnavailableError: with the reason of :func:`missing`.
    """
    why = missing()
    if why is not None:
        raise UnavailableError(why)


def run(
    recorded: Recorded,
    seed: int,
    *,
    functions: bool = False,
    seconds: float = LIMIT_S,
    maps: Path | None = None,
) -> list[Dump]:
    """Do a job under callgrind.

    Args:
        recorded: the job.
        seed: of the engine's hash maps; equal numbers give equal seeds in every process.
        functions: whether to count by function as well.
        seconds: after which the process is ended.
        maps: a file that gets what was mapped into the process at its end.

    Returns:
        The dumps in the order they were made.

    Raises:
        UnavailableError: see :func:`missing`; or valgrind does not know an instruction.
        CompareError: the job fails; the message has the program's own words.
    """
    require()
    with processes.temporary_folder() as folder:
        # Names of one length: what is on the stack moves what lies below it.
        (folder / "job").symlink_to(recorded.job.resolve())
        (folder / "recording").symlink_to(recorded.recording.resolve())
        environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
        environment["LLGBENCH_SEED"] = str(seed)
        preload = _stubs(recorded.engines)
        if preload is not None:
            environment["LD_PRELOAD"] = str(preload)
        done = processes.run(
            [
                "valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no",
                "--dump-line=no", "--combine-dumps=yes", "--callgrind-out-file=counts",
                "--log-file=log", "--vgdb=no",
                _program(), "job", "recording", *([] if maps is None else [str(maps)]),
            ],
            cwd=folder, env=environment, seconds=seconds,
        )  # fmt: skip
        if not done.ok:
            log = folder / "log"
            said = log.read_text(errors="replace") if log.is_file() else ""
            raise _refusal(said) or CompareError(f"counting under valgrind: {done.words}")
        return list(_dumps(folder / "counts", functions))


def _refusal(log: str) -> UnavailableError | None:
    """Return what valgrind cannot run, in one line; None where the program itself has ended."""
    unknown = _UNKNOWN.search(log)
    if unknown is None:
        return None
    place = _PLACE.search(log, unknown.end())
    where = f"in {place[1]}" if place is not None else "of the counted process"
    code = " ".join(byte.removeprefix("0x") for byte in unknown[1].split()[:4])
    return UnavailableError(
        f"counting: valgrind does not know an instruction {where} (bytes {code}): build it for any "
        "processor (without -C target-cpu=native), or install a later valgrind"
    )


def _dumps(path: Path, functions: bool) -> Iterator[Dump]:
    """Read the parts of callgrind's one file; the last is of the process's end and has no name."""
    names: dict[str, str] = {}
    for part in path.read_text(errors="replace").split("\npart: ")[1:]:
        trigger, totals = _TRIGGER.search(part), _TOTALS.search(part)
        if trigger is not None and totals is not None:
            found = _functions(part, names) if functions else {}
            yield Dump(trigger[1], int(totals[1]), found)


def _functions(part: str, names: dict[str, str]) -> dict[str, int]:
    """Return the self cost of each function that has a name.

    Args:
        part: of callgrind's file; a name is written out once, ``(NUMBER) NAME``, then by number.
        names: by number, of this part and those before.
    """
    found: Counter[str] = Counter()
    name, of_callee = "", False
    for line in part.splitlines()[1:]:  # the first is the part's number
        if named := _FUNCTION.match(line):
            number, text = named[2], named[3]
            if text:
                names[number] = _HASH.sub("", text)
            if not named[1]:
                name = names.get(number, "")
        elif line.startswith("calls="):
            of_callee = True  # the next line is what the callee cost
        elif line[:1] in _POSITION and line:
            if not of_callee and not name.startswith("0x"):
                found[name] += int(line.split()[1])
            of_callee = False
    return dict(found)


def _program() -> Path:
    """Return the program that counts, compiled unless it is in the cache.

    Raises:
        UnavailableError: it cannot be compiled here.
    """
    content = b"".join(path.read_bytes() for path in (*_SOURCES, *_HEADERS))
    return _compiled("counter", content, [*_FLAGS, *map(str, _SOURCES), "-ldl", "-lpthread"])


def _stubs(engines: Sequence[Path]) -> Path | None:
    """Return a library of what the engines want of Python; None where they want nothing.

    Raises:
        UnavailableError: it cannot be compiled here.
    """
    names = sorted({name for engine in engines for name in stubs.python_symbols(engine)})
    if not names:
        return None
    content = stubs.source(names).encode()
    with processes.temporary_folder() as folder:
        (folder / "stubs.c").write_bytes(content)
        return _compiled("stubs", content, ["-shared", "-fPIC", str(folder / "stubs.c")])


def _compiled(name: str, content: bytes, arguments: Sequence[str]) -> Path:
    """Return what the C compiler makes of some content, kept in the cache by its digest."""
    digest = hashlib.sha256(content + repr(_FLAGS).encode()).hexdigest()[:12]
    target = paths.cache() / "counting" / f"{name}-{digest}"
    if target.is_file():
        return target
    compiler = shutil.which("cc")
    if compiler is None:
        raise UnavailableError("counting requires a C compiler, cc (apt-get install gcc libc6-dev)")
    # Processes start beside each other: each builds a file of its own, and either may win.
    part = target.with_name(f".{target.name}-{os.getpid()}-{threading.get_ident()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        done = processes.run(
            [compiler, "-o", str(part), *arguments], env={**os.environ, "LC_ALL": "C"}
        )
        if "valgrind/callgrind.h" in done.stderr:
            raise UnavailableError(
                "counting requires valgrind's header, valgrind/callgrind.h (apt-get install "
                "valgrind; on Fedora valgrind-devel)"
            )
        if not done.ok:
            why = next((s for s in done.stderr.splitlines() if "error" in s), done.words)
            raise UnavailableError(f"counting: {compiler} does not build {target.name}: {why}")
        part.replace(target)
    except OSError as why:
        raise UnavailableError(f"counting: cannot write {target}: {why.strerror}") from None
    finally:
        with suppress(OSError):
            part.unlink()
    return target
