"""Ends what a command has started when the command itself is gone, however it went.

Run by :mod:`llgbench.processes` as a file, so that it starts in milliseconds: the standard library
alone, no site-packages. Each line of its input is ``+`` or ``-``, ``p`` or ``f``, and a process
number or the path of a folder. At the end of input, which comes when the command has ended by
whatever means, the processes that are left are killed with all their descendants and the folders
are removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys


def descendants(roots: set[int]) -> set[int]:
    """Return the processes of ``roots`` with all their descendants, by /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The second field is the command's name in brackets, which may hold anything.
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it has ended meanwhile
        children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    left = list(roots)
    while left:
        process = left.pop()
        if process not in found:
            found.add(process)
            left += children.get(process, [])
    return found


def kill(roots: set[int]) -> None:
    """Kill processes with all their descendants; those that have ended are passed over."""
    # Twice: what is started between the look and the kill is found by the second look, since its
    # parent is stopped by the first.
    processes = descendants(roots)
    for action in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            try:
                os.kill(process, action)
            except OSError:
                continue
        if action is signal.SIGSTOP:
            processes |= descendants(processes)


def main() -> None:
    """Read the lines; clean up at their end."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    processes: set[int] = set()
    folders: set[str] = set()
    for line in sys.stdin.buffer:
        text = os.fsdecode(line.rstrip(b"\n"))
        sign, kind, rest = text[0], text[1], text[2:]
        if kind == "p":
            (processes.add if sign == "+" else processes.discard)(int(rest))
        else:
            (folders.add if sign == "+" else folders.discard)(rest)
    kill(processes)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
