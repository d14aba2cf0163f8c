"""Runs the jobs in .github/ and action.yml as GitHub's runner does, as far as they are our own.

Every ``run:`` step is run as it stands, in order, with the runner's variables and files. What a
``uses:`` step does is given by the test; a step, a condition or an expression that is not known
here fails the test, so that none is passed over.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

# A step does in seconds here what takes minutes on a real night.
_LONGEST_S = 300

# What an action does with its inputs; its outputs, if any.
Uses = Callable[[Mapping[str, str]], dict[str, str] | None]


@dataclass
class Done:
    """What became of a job or an action.

    Attributes:
        failed: the status of each step that failed, by name.
        ran: names of the ``run:`` steps that were run, in order.
        outputs: of the steps, as ``steps.ID.outputs.NAME``.
        text: all that was printed.
    """

    failed: dict[str, int] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    text: str = ""


@dataclass
class Runner:
    """One machine that runs jobs.

    Attributes:
        workspace: the working directory of every step.
        temp: of the job, with the runner's own files.
        environment: of every step.
        contexts: values of expressions, such as ``github.repository``.
        uses: what an action does, by its name without the version.
        values: variables that a test sets in place of a step's own, so that it ends soon.
    """

    workspace: Path
    temp: Path
    environment: dict[str, str]
    contexts: dict[str, str]
    uses: dict[str, Uses]
    values: dict[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> Path:
        """The job's summary."""
        return self.temp / "summary.md"

    def job(self, workflow: Path, name: str) -> Done:
        """Run a job of a workflow."""
        return self._steps(_load(workflow)["jobs"][name]["steps"], {}, None)

    def action(self, folder: Path, inputs: Mapping[str, str]) -> Done:
        """Run a composite action with its inputs."""
        loaded = _load(folder / "action.yml")
        unknown = set(inputs) - set(loaded["inputs"])
        assert not unknown, f"the action has no inputs {unknown}"
        values = {
            f"inputs.{name}": inputs.get(name) or self._text(about["default"], {})
            for name, about in loaded["inputs"].items()
        }
        values["github.action_path"] = str(folder)
        return self._steps(loaded["runs"]["steps"], values, folder)

    def _steps(
        self, steps: Sequence[Mapping[str, Any]], values: dict[str, str], action: Path | None
    ) -> Done:
        done = Done()
        for number, step in enumerate(steps):
            name = step.get("name") or step.get("uses", "").partition("@")[0] or f"step {number}"
            known = {**values, **done.outputs}
            if not self._wanted(step.get("if"), known, failed=bool(done.failed)):
                continue
            if "run" in step:
                assert action is None or step["shell"] == "bash"
                done.ran.append(name)
                status, text = self._run(step, known, action, done)
                done.text += text
                if status != 0:
                    done.failed[name] = status
                continue
            given = {k: self._text(str(v), known) for k, v in step.get("with", {}).items()}
            try:
                made = self.uses[step["uses"].partition("@")[0]](given)
                for key, value in (made or {}).items():
                    done.outputs[f"steps.{step['id']}.outputs.{key}"] = value
            except FileNotFoundError:  # an artifact that is not there
                done.failed[name] = 1
        return done

    def _run(
        self, step: Mapping[str, Any], known: Mapping[str, str], action: Path | None, done: Done
    ) -> tuple[int, str]:
        files = {name: self.temp / f"github_{name.lower()}" for name in ("OUTPUT", "ENV", "PATH")}
        for file in files.values():
            file.write_text("")
        script = self.temp / "step.sh"
        assert "${{" not in step["run"], "an expression in a script is code from elsewhere"
        script.write_text(step["run"])
        own = {name: self._text(str(value), known) for name, value in step.get("env", {}).items()}
        own |= {name: value for name, value in self.values.items() if name in own}
        environment = {
            **self.environment, **own, "CI": "true", "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace), "RUNNER_TEMP": str(self.temp),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            **{f"GITHUB_{name}": str(file) for name, file in files.items()},
            **({} if action is None else {"GITHUB_ACTION_PATH": str(action)}),
        }  # fmt: skip
        named = step.get("shell") == "bash"
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail"] if named else ["bash", "-e"]
        ran = subprocess.run(
            [*shell, str(script)], cwd=self.workspace, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            timeout=_LONGEST_S,
        )  # fmt: skip
        assert files["ENV"].read_text() == files["PATH"].read_text() == "", "not followed here"
        for line in files["OUTPUT"].read_text().splitlines():
            key, _, value = line.partition("=")
            done.outputs[f"steps.{step['id']}.outputs.{key}"] = value
        return ran.returncode, ran.stdout

    def _wanted(self, condition: str | None, known: Mapping[str, str], *, failed: bool) -> bool:
        if condition is None:
            return not failed
        if condition == "${{ !cancelled() }}":
            return True
        compared = re.fullmatch(r"\$\{\{ ([\w.-]+) (==|!=) '(\w*)' \}\}", condition)
        assert compared is not None, f"unknown condition {condition}"
        equal = self._value(compared[1], known) == compared[3]
        return not failed and equal == (compared[2] == "==")

    def _text(self, text: str, known: Mapping[str, str]) -> str:
        return re.sub(r"\$\{\{ (.+?) \}\}", lambda at: self._value(at[1], known), text)

    def _value(self, expression: str, known: Mapping[str, str]) -> str:
        if expression.startswith("hashFiles("):
            patterns = re.findall(r"'([^']+)'", expression)
            assert all(any(self.workspace.glob(p)) for p in patterns), f"no file for {patterns}"
            return "hash"
        values = {**self.contexts, "runner.temp": str(self.temp), **known}
        return values[expression]


def python_for_jobs(folder: Path) -> str:
    """Make an environment that has what this one has; return the PATH that begins with it.

    What a job installs goes into it, and what is here already need not be fetched.
    """
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python3.*/site-packages")
    (site / "jobs.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")))
    here = Path(sys.executable).parent
    return os.pathsep.join((str(folder / "bin"), str(here), os.environ["PATH"]))


def _load(path: Path) -> Any:
    return YAML(typ="safe").load(path)
