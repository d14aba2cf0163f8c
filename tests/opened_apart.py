"""Opens files named on standard input, each in a process forked for it; one line of JSON per file.

llama.cpp's library is loaded once, so that a file takes milliseconds, and one that ends its process
costs no more than another.

    python tests/opened_apart.py < NAMES
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable

import gguf  # noqa: F401  # loaded once

from llgbench import isolated, processes
from llgbench.errors import LlgbenchError
from llgbench.inputs import gguf_faults
from llgbench.last_words import last_words
from llgbench.llama import api, trial, vocab

SECONDS = 5  # of a core
MEMORY_MIB = 2048


def exercise(path: str) -> str:
    """Ask of a vocabulary all that is ever asked of one."""
    trial.exercise(path)
    with vocab.open_vocab(path) as opened:
        opened.spell(opened.tokenize(b"{}", parse_special=True))
        try:
            opened.trace(b'{"on": [1]}')
        except LlgbenchError as error:
            return str(error)
        return f"{opened.n_tokens} tokens"


def examine(path: str) -> str:
    """Look for what llama.cpp does not survive."""
    from pathlib import Path

    try:
        return gguf_faults.examine(Path(path)) or ""
    except Exception:  # no answer, as of any file that cannot be read
        return ""


def apart(function: Callable[[str], str], path: str) -> dict[str, object]:
    """Call a function in a process of its own; return what it says and how it ends.

    ``late`` is whether the limit on CPU time ended it, ``words`` are its last of standard error.
    """
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as words:
        child = os.fork()
        if child == 0:
            os.dup2(words.fileno(), 2)
            os.dup2(2, 1)
            # At the first the kernel sends SIGXCPU, which nothing else does: a SIGKILL is no limit.
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
            isolated.limit_memory(MEMORY_MIB)
            status = 1
            try:
                found: dict[str, str] = {"result": function(path)}
                status = 0
            except LlgbenchError as error:
                found = {"refused": str(error)}
                status = 0
            except BaseException as error:
                found = {"raised": f"{type(error).__name__}: {error}"}
            said.write(json.dumps(found).encode())
            said.flush()
            os._exit(status)
        _, code = os.waitpid(child, 0)
        said.seek(0)
        words.seek(0)
        found = json.loads(said.read() or b"{}")
        last = last_words(words.read().decode(errors="replace"))
        status = os.waitstatus_to_exitcode(code)
        late = status == -signal.SIGXCPU
        return {**found, "status": status, "words": last, "late": late}


def main() -> None:
    """Serve until there are no more names."""
    processes.keeps_last_words = True
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["GGML_NO_BACKTRACE"] = "1"
    api.llama()
    for line in sys.stdin:
        path = line.rstrip("\n")
        print(json.dumps([apart(exercise, path), apart(examine, path)]), flush=True)


if __name__ == "__main__":
    main()
