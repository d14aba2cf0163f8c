"""Small folders of ASV results whose alerts are known, and repositories for their commits."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MACHINE = "runner"
ENVIRONMENT = "virtualenv-py3.12"
DAY_MS = 86_400_000
FIRST_MS = 1_700_000_000_000

# What ASV writes today, in its order.
COLUMNS = [
    "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b",
    "stats_q_25", "stats_q_75", "stats_number", "stats_repeat", "samples", "profile",
]  # fmt: skip

# A value, or a value and half of its 99% interval.
Value = float | tuple[float, float] | None


def commit(number: int) -> str:
    return f"{number:08x}{0:032x}"


def write_commit(
    folder: Path,
    name: str,
    values: Mapping[str, Value],
    *,
    date_ms: int = FIRST_MS,
    machine: str = MACHINE,
    environment: str = ENVIRONMENT,
    version: str | None = "1",
    started_ms: int | None = None,
    parameters: Sequence[str] = ("listed",),
    **more: Any,
) -> Path:
    """Write what was measured at one commit, every benchmark with one choice of parameters."""
    results = {}
    for benchmark, value in values.items():
        number, half = value if isinstance(value, tuple) else (value, None)
        row: list[Any] = [[number], [[repr(p)] for p in parameters], version, started_ms]
        if half is not None and number is not None:
            row += [0.5, [number - half], [number + half]]
        results[benchmark] = row
    place = folder / machine
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "machine.json").exists():
        (place / "machine.json").write_text(json.dumps({"machine": machine, "version": 1}))
    path = place / f"{name[:8]}-{environment}.json"
    content = {
        "version": 2, "commit_hash": name, "env_name": environment, "date": date_ms,
        "params": {"machine": machine, "python": "3.12"}, "python": "3.12", "requirements": {},
        "env_vars": {}, "result_columns": COLUMNS, "results": results, "durations": {}, **more,
    }  # fmt: skip
    path.write_text(json.dumps(content))
    return path


def write_index(folder: Path, units: Mapping[str, str], version: str = "1") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    about = {name: {"name": name, "unit": unit, "version": version} for name, unit in units.items()}
    (folder / "benchmarks.json").write_text(json.dumps({**about, "version": 2}))


def write(
    folder: Path,
    benchmark: str,
    unit: str,
    values: Sequence[Value],
    commits: Sequence[str] | None = None,
    **more: Any,
) -> Path:
    """Write one benchmark's value at every commit, a day apart; return the folder."""
    names = commits or [commit(number) for number in range(len(values))]
    for number, (name, value) in enumerate(zip(names, values, strict=True)):
        if value is not None:
            write_commit(
                folder, name, {benchmark: value}, date_ms=FIRST_MS + number * DAY_MS, **more
            )
    write_index(folder, {benchmark: unit})
    return folder


def only(folder: Path, count: int) -> None:
    """Take away what is newer than the first so many commits of :func:`write`."""
    for path in sorted((folder / MACHINE).glob("0*.json"))[count:]:
        path.unlink()


def git(folder: Path, *arguments: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], input=stdin, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return done.stdout


def write_history(
    folder: Path, branches: Mapping[str, tuple[str | None, int]]
) -> dict[str, list[str]]:
    """Make a repository.

    Args:
        folder: where.
        branches: by name, what it starts from and how many commits it adds. All commits are of one
            and the same second.

    Returns:
        The commits that each branch adds, in order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch", next(iter(branches)))
    found = {}
    for name, (start, count) in branches.items():
        lines = []
        for number in range(count):
            text = f"{name} {number}"
            lines += [
                f"commit refs/heads/{name}", "committer T <t@example.org> 1700000000 +0000",
                f"data {len(text)}", text,
            ]  # fmt: skip
            if number == 0 and start is not None:
                lines.append(f"from {start}")
            lines.append("")
        git(folder, "fast-import", "--quiet", stdin="\n".join(lines))
        added = git(folder, "rev-list", "--reverse", f"--max-count={count}", name).split()
        found[name] = added
    return found
