"""Checks every shell script of this checkout, those in its jobs and its action too.

python tools/check_shell.py
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]


def scripts(root: Path = ROOT) -> Iterator[Path]:
    """Yield the files that begin as a shell script does."""
    for path in sorted([*root.glob(".ci/*"), *root.glob("tools/*"), *root.glob("*.sh")]):
        if path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env bash\n"):
            yield path


def steps(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield the ``run:`` steps of all jobs and of the action: where, and a script of each."""
    for path in (root / "action.yml", *sorted((root / ".github" / "workflows").glob("*.yml"))):
        loaded: Any = YAML(typ="safe").load(path)
        for job, content in loaded.get("jobs", {"action": loaded.get("runs")}).items():
            for number, step in enumerate(content["steps"]):
                if "run" in step:
                    # As a job runs it: its variables are there, and what fails ends it.
                    head = f"#!/usr/bin/env bash\nset -e\nexport {' '.join(step.get('env', ()))}\n"
                    yield f"{path.stem}.{job}.{step.get('name', number)}", head + step["run"]


def main() -> None:
    """Run the command."""
    with tempfile.TemporaryDirectory() as folder:
        written = []
        for where, script in steps():
            path = Path(folder, where.replace("/", "_"))
            path.write_text(script)
            written.append(path)
        shellcheck = Path(sysconfig.get_path("scripts"), "shellcheck")
        files = [str(path) for path in (*scripts(), *written)]
        sys.exit(subprocess.run([shellcheck, "--norc", *files], check=False).returncode)


if __name__ == "__main__":
    main()
