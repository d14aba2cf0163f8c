"""Commands that are ended from outside at a moment, and what must not be left of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)

# For what comes about in a second on a machine that has nothing else to do.
PATIENCE_S = 120.0


def end_when(
    begun: Callable[[str], bool], command: Sequence[str], number: signal.Signals,
    environment: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """Run a command and send it a signal as soon as a moment has come; return all that it said.

    By then it must be running. No process and no temporary file of it may be left when it is gone.

    Args:
        begun: whether the moment has come, by what the command has said so far.
        command: the program and its arguments.
        number: the signal.
        environment: more variables.
    """
    with tempfile.TemporaryDirectory() as temporary:
        said = Path(temporary).with_suffix(".said")
        with said.open("wb") as file:
            process = subprocess.Popen(
                command, env={**os.environ, **(environment or {}), "TMPDIR": temporary},
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                # A shell's background job ignores SIGINT, a terminal's does not.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )  # fmt: skip
        try:
            _until(lambda: begun(said.read_text()) or process.poll() is not None, said.read_text)
            assert process.poll() is None, said.read_text()
            process.send_signal(number)
            process.wait(PATIENCE_S)
            # What SIGKILL leaves is cleared by another process.
            _until(lambda: not left(temporary), lambda: str(left(temporary)))
            text = said.read_text()
        finally:
            process.kill()
            process.wait()
            said.unlink()
    if number == signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 2, text
        assert text.splitlines()[-1] == INTERRUPTED
    assert "Traceback" not in text
    return text


INTERRUPTED = "llgbench: interrupted; nothing half-written is left behind"


def left(temporary: str) -> list[str]:
    """Return the files in a folder for temporary files, and the processes that were given it.

    Not the file by which Python's tempfile tries whether a folder can be written
    (_get_default_tempdir): it is made and removed within one call, and a process that is killed in
    the middle of that call leaves it.
    """
    found = [str(path) for path in Path(temporary).iterdir() if not _is_tempfiles_trial(path)]
    for place in Path("/proc").glob("[0-9]*"):
        try:
            environment = (place / "environ").read_bytes()
            command = (place / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended meanwhile
        if f"TMPDIR={temporary}".encode() in environment:
            found.append(f"{place.name}: {command.replace(bytes(1), b' ').decode()}")
    return found


def _is_tempfiles_trial(path: Path) -> bool:
    if re.fullmatch("[a-z0-9_]{8}", path.name) is None:
        return False
    try:
        return path.read_bytes() in (b"", b"blat")
    except OSError:
        return False  # a folder, or removed meanwhile


def _until(condition: Callable[[], bool], words: Callable[[], str]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"it did not come about: {words()}"
        time.sleep(0.01)
