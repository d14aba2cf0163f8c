"""The nightly job's own commands, in a repository that ASV can measure in seconds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_results import git
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]

BENCHMARK = """
class Facts:
    version = "1"
    unit = "tokens"

    def track_wrong_tokens(self):
        return 0
"""


def step(name: str) -> str:
    """Return the commands of a step of the nightly job."""
    job = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "nightly.yml")
    (found,) = (s for s in job["jobs"]["asv"]["steps"] if s.get("name") == name)
    commands: str = found["run"]
    return commands


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Two commits of a repository laid out as this one is, with results of another machine."""
    folder = tmp_path / "clone"
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks" / "__init__.py").touch()
    (folder / "benchmarks" / "facts.py").write_text(BENCHMARK)
    conf = json.loads((ROOT / "asv.conf.json").read_text())
    conf |= {key: [] for key in ("build_command", "install_command", "uninstall_command")}
    (folder / "asv.conf.json").write_text(json.dumps(conf))
    shutil.copy(ROOT / ".gitignore", folder)
    shutil.copytree(ROOT / "results" / "reference", folder / "results" / "reference")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for number in range(2):
        (folder / "file").write_text(str(number))
        git(folder, "add", ".")
        git(folder, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "c")
    return folder


def test_a_night_without_a_commit_is_published_and_judged(clone: Path, tmp_path: Path) -> None:
    """And two commits compare, though another machine's results are in the repository."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        **os.environ, "HOME": str(home), "RUNNER_TEMP": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "LLGBENCH_ROOT": str(ROOT),
    }  # fmt: skip

    def run(commands: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-e", "-c", commands], cwd=clone, env=environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip

    assert run("asv machine --yes --machine nightly").returncode == 0
    first = run(step("Measure"))
    if first.returncode != 0 and "pip" in first.stdout + first.stderr:
        pytest.skip(f"ASV cannot make an environment here: {first.stderr[-300:]}")
    results = clone / "results" / "asv" / "nightly"
    assert first.returncode == 0, first.stdout
    measured = {path.name: path.stat().st_mtime_ns for path in results.glob("*-*.json")}
    assert len(measured) == 2
    again = run(step("Measure"))
    assert again.returncode == 0, again.stdout
    assert measured == {p.name: p.stat().st_mtime_ns for p in results.glob("*-*.json")}
    assert run(step("Publish")).returncode == 0
    judged = run(f"python -m llgbench.commands.cli alerts --results {clone / 'results'}")
    assert judged.returncode == 0, judged.stderr
    assert judged.stdout.startswith("0 new alerts")
    compared = run("asv compare HEAD~1 HEAD")
    assert compared.returncode == 0, compared.stderr
    assert "facts.Facts.track_wrong_tokens" in compared.stdout
    assert git(clone, "status", "--porcelain") == ""
