"""Processes: real children that end, crash, hang, and are left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from llgbench import processes
from llgbench.errors import ProcessError

PYTHON = sys.executable


def test_a_child_that_ends_well_gives_what_it_wrote() -> None:
    done = processes.run([PYTHON, "-c", "import sys; print('out'); print('err', file=sys.stderr)"])
    assert done.ok
    assert done.stdout == b"out\n"
    assert done.stderr == "err\n"


def test_a_program_that_is_not_there_is_one_line() -> None:
    with pytest.raises(ProcessError, match="cannot start no-such-program: No such file"):
        processes.run(["no-such-program"])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os; os.abort()", "killed by SIGABRT"),
        ("import sys; sys.exit('it is full')", "it is full"),
        ("import sys; sys.exit(7)", "ended with status 7"),
        (
            "import os, sys; sys.stderr.write('GGML_ASSERT(x) failed\\n'); os.abort()",
            "GGML_ASSERT(x) failed (killed by SIGABRT)",
        ),
    ],
)
def test_the_last_words_say_why(code: str, words: str) -> None:
    assert processes.run([PYTHON, "-c", code]).words == words


def test_a_child_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    done = processes.run([PYTHON, "-c", code], seconds=1.0)
    assert not done.ok
    assert done.words == "ended after its time limit of 1 s"
    assert _gone(int(pid.read_text()))


def test_memory_is_capped() -> None:
    done = processes.run([PYTHON, "-c", "x = bytearray(1 << 30)"], memory_mib=300)
    assert not done.ok
    assert "MemoryError" in done.words


def test_a_child_with_a_long_standard_error_does_not_wait() -> None:
    done = processes.run([PYTHON, "-c", "import sys; sys.stderr.write('x' * (1 << 22) + '\\nend')"])
    assert done.ok
    assert done.words == "end"
    assert len(done.stderr) < 1 << 17


def test_temporary_files_of_children_lie_in_our_folder() -> None:
    with processes.temporary_folder() as folder:
        done = processes.run([PYTHON, "-c", "import tempfile; print(tempfile.gettempdir())"])
        assert Path(done.stdout.decode().strip()) == folder.parent
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_stays_when_the_command_is_gone(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import pathlib, sys\n"
        "from llgbench import processes\n"
        "processes.handle_signals()\n"
        "with processes.temporary_folder() as folder:\n"
        "    said = pathlib.Path(sys.argv[1])\n"
        "    inner = ['sh', '-c', f'sleep 600 & echo $! $$ {folder} > {said}.part;'\n"
        "             f'mv {said}.part {said}; wait']\n"
        "    processes.run(inner)\n"
    )
    said = tmp_path / "said"
    command = subprocess.Popen([PYTHON, "-c", code, str(said)], stderr=subprocess.DEVNULL)
    _wait_for(said.exists)
    sleeper, shell, folder = said.read_text().split()
    command.send_signal(number)
    command.wait(10)
    assert _gone(int(sleeper))
    assert _gone(int(shell))
    _wait_for(lambda: not Path(folder).parent.exists())


def test_a_child_dies_with_its_parent() -> None:
    code = (
        "import os, subprocess, sys\n"
        "inner = 'import os, sys, time\\nfrom llgbench import processes\\n"
        "processes.die_with_parent(int(sys.argv[1]))\\nprint(os.getpid(), flush=True)\\n"
        "time.sleep(600)'\n"
        "child = subprocess.Popen([sys.executable, '-c', inner, str(os.getpid())],\n"
        "                         stdout=subprocess.PIPE)\n"
        "print(child.stdout.readline().decode(), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, check=False, timeout=30)
    assert _gone(int(done.stdout))


def _gone(process: int) -> bool:
    def ended() -> bool:
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return True
        return stat.rpartition(")")[2].split()[0] == "Z"  # nobody may be there to reap it

    _wait_for(ended)
    return True


def _wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.02)


def test_no_folder_is_made_where_nothing_would_remove_it(tmp_path: Path) -> None:
    """The keeper, which removes it, takes descriptors that there may not be."""
    code = (
        "import resource, sys, tempfile; from llgbench import processes\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))\n"
        "with processes.temporary_folder(): pass\n"
    )
    done = processes.run([PYTHON, "-c", code, tmp_path])
    assert "Too many open files" in done.stderr
    assert list(tmp_path.iterdir()) == []
