"""Alerts: steps in made-up ASV results, decisions in a file, and the configuration for ASV."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from asv.config import Config

from llgbench import alerts, asv_config
from llgbench.alerts import Alert
from llgbench.errors import InputError, RecordError, UnknownNameError

# Forty commits; the step is at the twenty-first.
FLAT = [100.0, 101.0, 99.5, 100.5] * 10
STEP = FLAT[:20] + [value * 1.3 for value in FLAT[20:]]


def write_results(folder: Path, values: list[float]) -> None:
    (folder / "runner").mkdir(parents=True)
    (folder / "runner" / "machine.json").write_text('{"machine": "runner", "version": 1}')
    for at, value in enumerate(values):
        commit = f"{at:040x}"
        (folder / "runner" / f"{commit[-8:]}-env.json").write_text(
            json.dumps(
                {
                    "version": 2, "commit_hash": commit, "env_name": "env",
                    "date": 1_700_000_000_000 + at * 86_400_000, "python": "3.12",
                    "requirements": {}, "env_vars": {}, "durations": {},
                    "params": {"machine": "runner", "python": "3.12"},
                    "result_columns": ["result", "params"],
                    "results": {"masks.Masks.track_tbm_p50": [[value], [["'github-workflow'"]]]},
                }
            )
        )  # fmt: skip
    (folder / "benchmarks.json").write_text(
        json.dumps({"masks.Masks.track_tbm_p50": {"unit": "ns"}, "version": 2})
    )


def test_a_step_is_one_line_with_its_commits(tmp_path: Path) -> None:
    write_results(tmp_path, STEP)
    (alert,) = alerts.from_asv(tmp_path)
    assert (alert.before, alert.after) == (f"{19:040x}", f"{20:040x}")
    assert alert.new / alert.old == pytest.approx(1.3, rel=0.01)
    assert alert.parameters == "github-workflow"
    assert alert.confidence > 0.99
    assert "\n" not in str(alert)
    assert "+30" in str(alert)


def test_no_step_and_a_step_down_are_silent(tmp_path: Path) -> None:
    write_results(tmp_path / "flat", FLAT)
    write_results(tmp_path / "down", STEP[::-1])
    assert alerts.from_asv(tmp_path / "flat") == []
    assert alerts.from_asv(tmp_path / "down") == []


def test_a_decision_stays_with_its_reason(tmp_path: Path) -> None:
    write_results(tmp_path, STEP)
    found = alerts.from_asv(tmp_path)
    file = tmp_path / alerts.ACCEPTED
    day = datetime(2026, 11, 30, tzinfo=UTC)
    assert alerts.split(found, alerts.accepted(file)) == (found, [])
    assert alerts.accept(file, found, "compiles eagerly", day) == 1
    assert alerts.accept(file, found, "again", day) == 0
    assert alerts.split(found, alerts.accepted(file)) == ([], found)
    assert alerts.accepted(file)[found[0].key]["reason"] == "compiles eagerly"
    assert alerts.accepted(file)[found[0].key]["date"] == "2026-11-30"


def test_a_decision_needs_a_reason_and_a_whole_file(tmp_path: Path) -> None:
    alert = Alert("asv", "m", "b", "", "1", "2", 1.0, 2.0, "ns", 1.0)
    with pytest.raises(InputError, match="reason"):
        alerts.accept(tmp_path / "alerts.json", [alert], "  ")
    (tmp_path / "alerts.json").write_text("[]")
    with pytest.raises(RecordError, match="restore it"):
        alerts.accepted(tmp_path / "alerts.json")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "llguidance"
    folder.mkdir()
    (folder / "Cargo.toml").write_text("")
    for words in (
        ["init", "-q", "-b", "main"], ["add", "."],
        ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "one"],
    ):  # fmt: skip
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


def test_asv_reads_the_configuration(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    path = asv_config.write(checkout, cases=("listed",), vocabs=("llama-spm",))
    conf = Config.load(str(path))
    assert conf.repo == str(checkout)
    assert conf.branches == ["main"]
    assert "--crate-type cdylib" in conf.build_command[0]
    assert conf.build_command[0].startswith("in-dir={build_dir} /bin/cargo ")
    names: dict[str, object] = {}
    source = (path.parent / "benchmarks" / "masks.py").read_text()
    exec(compile(source, "masks.py", "exec"), names)
    assert names["Masks"].params == (["listed"], ["llama-spm"])  # type: ignore[attr-defined]


def test_asv_refuses_what_it_could_not_measure(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    with pytest.raises(InputError, match="no revision 'other'"):
        asv_config.write(checkout, branch="other")
    with pytest.raises(InputError, match="no git checkout"):
        asv_config.write(checkout.parent / "nothing")
    with pytest.raises(UnknownNameError, match="vocab"):
        asv_config.write(checkout, vocabs=("llama-bep",))
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(InputError, match="cargo"):
        asv_config.write(checkout)
