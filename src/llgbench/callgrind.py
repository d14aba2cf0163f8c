"""A worker under callgrind: instructions instead of time, call by call.

The worker's C code switches collection on inside llguidance's calls alone and asks for a dump after
each (csrc/count.c). What differs between two engines that run the same code is taken out by a
preloaded library: the hash seeds (csrc/seed.c), and what the allocator costs (csrc/steady.c).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llgbench import paths
from llgbench._native import lib
from llgbench.errors import CompareError, UnavailableError

# The hash seeds, and the allocator.
_PRELOADED = tuple(Path(__file__).parent / "csrc" / name for name in ("seed.c", "steady.c"))
_TRIGGER = re.compile(r"^desc: Trigger: Client Request: (.+)$", re.MULTILINE)
_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Dump:
    """What was collected since the dump before.

    Attributes:
        name: as the worker's C code gave it.
        instructions: read, user space.
    """

    name: str
    instructions: int


def missing() -> str | None:
    """Return why instructions cannot be counted here; None where they can."""
    if shutil.which("valgrind") is None:
        return "counting takes valgrind, which is not installed (apt-get install valgrind)"
    if not lib.lb_count_built():
        return (
            "counting takes valgrind's header when llgbench is built; install valgrind with its "
            "header and run: pip install --force-reinstall --no-deps -e ."
        )
    return None


def require() -> None:
    """Raise where instructions cannot be counted.

    Raises:
        UnavailableError: with the reason of :func:`missing`.
    """
    why = missing()
    if why is not None:
        raise UnavailableError(why)


def run(module: str, job: Mapping[str, Any], seed: int) -> tuple[dict[str, Any], list[Dump]]:
    """Run ``python -m MODULE JOB RESULT`` under callgrind, both JSON files.

    Args:
        module: the worker.
        job: written to JOB.
        seed: of the engine's hash maps; equal numbers give equal seeds in every process.

    Returns:
        What the worker wrote to RESULT, and the dumps in the order they were made.

    Raises:
        CompareError: the worker gives no result; the message has its last line.
    """
    with tempfile.TemporaryDirectory(prefix="llgbench-") as place:
        folder = Path(place)
        ask, answer = folder / "job.json", folder / "result.json"
        ask.write_text(json.dumps(job))
        environment = {**os.environ, "PYTHONHASHSEED": "0", "LLGBENCH_SEED": str(seed)}
        preload = _preload()
        if preload is not None:
            environment["LD_PRELOAD"] = str(preload)
        done = subprocess.run(
            [
                "valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no",
                "--dump-line=no", f"--callgrind-out-file={folder / 'counts'}",
                sys.executable, "-m", module, str(ask), str(answer),
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
            env=environment,
        )  # fmt: skip
        if not answer.is_file():
            said = [s for s in done.stderr.splitlines() if s.strip() and not s.startswith("==")]
            raise CompareError(
                f"the worker under valgrind gives no result: "
                f"{said[-1] if said else f'status {done.returncode}'}"
            )
        result: dict[str, Any] = json.loads(answer.read_text())
        return result, _dumps(folder)


def _dumps(folder: Path) -> list[Dump]:
    found = []
    files = [p for p in folder.glob("counts.*") if p.suffix[1:].isdigit()]
    for path in sorted(files, key=lambda p: int(p.suffix[1:])):
        text = path.read_text()
        trigger, totals = _TRIGGER.search(text), _TOTALS.search(text)
        if trigger is not None and totals is not None:  # else the dump at the process's end
            found.append(Dump(trigger[1], int(totals[1])))
    return found


def _preload() -> Path | None:
    """Return the library that makes processes alike; None where there is no C compiler.

    Without it the counts are as right and less alike.
    """
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in _PRELOADED)).hexdigest()[:12]
    library = paths.cache() / "counting" / f"alike-{digest}.so"
    if library.is_file():
        return library
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library.parent.mkdir(parents=True, exist_ok=True)
    # Workers start beside each other: each writes a file of its own, and either may win.
    part = library.with_suffix(f".{os.getpid()}-{threading.get_ident()}.part")
    # -fno-builtin: else calloc's malloc and memset become the calloc they are in.
    how = ["-O2", "-fno-builtin", "-shared", "-fPIC"]
    built = subprocess.run(
        [compiler, *how, "-o", str(part), *map(str, _PRELOADED)], capture_output=True, check=False
    )
    if built.returncode != 0:
        return None
    part.replace(library)
    return library
