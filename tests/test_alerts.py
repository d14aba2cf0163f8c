"""Alerts: steps in made-up ASV results, decisions in a file, and the configuration for ASV."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import made_records
import pytest
from asv.config import Config

from llgbench import alerts, asv_config, registry
from llgbench.alerts import Alert
from llgbench.commit_benchmarks import ratio_twin
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


# Twelve processes that read the ratio to within 1%, as ASV keeps it.
NARROW, WIDE = 0.01, 0.5


def write_pair(
    folder: Path, times: list[float], ratios: list[float], interval: float,
    versions: tuple[str, str] = ("2", "2"),
) -> None:  # fmt: skip
    """Write commits with a time and its ratio; the ratio's interval is value ± interval.

    Versions are those of the ratio: the first half of the commits has one, the rest the other.
    """
    (folder / "runner").mkdir(parents=True)
    (folder / "runner" / "machine.json").write_text('{"machine": "runner", "version": 1}')
    names = ("masks.Masks.track_ttfm", "masks.Ratios.track_ttfm")
    for at, (time, ratio) in enumerate(zip(times, ratios, strict=True)):
        version = versions[at >= len(times) // 2]
        results = {
            names[0]: [[time], [["'listed'"]], "2", [time * 0.99], [time * 1.01]],
            names[1]: [
                [ratio], [["'listed'"]], version, [ratio - interval], [ratio + interval],
            ],
        }  # fmt: skip
        (folder / "runner" / f"{at:08x}-env.json").write_text(
            json.dumps(
                {
                    "version": 2, "commit_hash": f"{at:040x}", "env_name": "env",
                    "date": 1_700_000_000_000 + at * 86_400_000, "python": "3.12",
                    "requirements": {}, "env_vars": {}, "durations": {},
                    "params": {"machine": "runner", "python": "3.12"},
                    "result_columns": [
                        "result", "params", "version", "stats_ci_99_a", "stats_ci_99_b",
                    ],
                    "results": results,
                }
            )
        )  # fmt: skip
    about = {
        name: {"unit": unit, "version": "2"}
        for name, unit in zip(names, ("ns", "ratio"), strict=True)
    }
    (folder / "benchmarks.json").write_text(json.dumps({**about, "version": 2}))


LOADED = [100.0, 101.0, 220.0, 230.0]


def test_load_that_hits_both_engines_is_no_step(tmp_path: Path) -> None:
    """Each commit is measured alone: times of the later two doubled, ratios did not."""
    write_pair(tmp_path, LOADED, [1.0, 1.003, 0.998, 1.002], NARROW)
    assert alerts.from_asv(tmp_path) == []
    # Without the ratio beside them the same times are a step.
    table = json.loads((tmp_path / "benchmarks.json").read_text())
    for file in (tmp_path / "runner").glob("*-env.json"):
        content = json.loads(file.read_text())
        del content["results"]["masks.Ratios.track_ttfm"]
        file.write_text(json.dumps(content))
    assert [alert.benchmark for alert in alerts.from_asv(tmp_path)] == list(table)[:1]


def test_one_point_of_known_error_is_enough(tmp_path: Path) -> None:
    slower = [1.0, 1.003, 0.998, 1.2]
    write_pair(tmp_path / "narrow", LOADED[::-1], slower, NARROW)
    write_pair(tmp_path / "wide", LOADED[::-1], slower, WIDE)
    (alert,) = alerts.from_asv(tmp_path / "narrow")
    assert (alert.benchmark, alert.unit) == ("masks.Ratios.track_ttfm", "ratio")
    assert alert.after == f"{3:040x}"
    assert alert.confidence > 0.99
    assert alerts.from_asv(tmp_path / "wide") == []


def test_the_newest_commit_does_not_wait_for_a_second(tmp_path: Path) -> None:
    """ASV's detection takes one point among many for an outlier; found later, it is the same."""
    flat = [1.0, 1.004, 0.998, 0.996, 1.002, 1.0, 1.003, 0.999, 1.001, 1.0]
    write_pair(tmp_path / "once", [100.0] * 11, [*flat, 1.1], NARROW)
    write_pair(tmp_path / "twice", [100.0] * 12, [*flat, 1.1, 1.101], NARROW)
    (once,) = alerts.from_asv(tmp_path / "once")
    (twice,) = alerts.from_asv(tmp_path / "twice")
    assert once.key == twice.key
    assert once.after == f"{10:040x}"
    write_pair(tmp_path / "flat", [100.0] * 10, flat, NARROW)
    assert alerts.from_asv(tmp_path / "flat") == []


def test_another_reference_begins_another_history(tmp_path: Path) -> None:
    stepped = [1.0, 1.001, 1.3, 1.301]
    write_pair(tmp_path / "same", LOADED, stepped, NARROW)
    write_pair(tmp_path / "other", LOADED, stepped, NARROW, versions=("1", "2"))
    assert len(alerts.from_asv(tmp_path / "same")) == 1
    assert alerts.from_asv(tmp_path / "other") == []


# Medians of cold_mask of five configurations; the last one's engine is another in each record.
BEFORE = (1_000, 20_000, 3_000, 70_000, 5_000)


def write_records(folder: Path, *sittings: Sequence[float]) -> None:
    for at, medians in enumerate(sittings):
        entries = [
            made_records.entry(
                case=f"case-{n}", mask=[[round(median + i % 5)] * 20 for i in range(20)]
            )
            for n, median in enumerate(medians)
        ]
        entries[-1] = replace(entries[-1], engine={"name": "own", "sha256": f"{at:064x}"})
        made_records.record(folder, *entries, mark=f"mark-{at}")


def test_a_slower_machine_is_no_alert(tmp_path: Path) -> None:
    noise = (1.31, 1.29, 1.3, 1.3, 1.31)
    write_records(tmp_path, BEFORE, [value * by for value, by in zip(BEFORE, noise, strict=True)])
    assert alerts.from_records(tmp_path) == []


def test_an_engine_that_is_slower_than_the_machine_has_become_is_one(tmp_path: Path) -> None:
    noise = (1.31, 1.29, 1.3, 1.3, 1.3 * 1.1)
    write_records(tmp_path, BEFORE, [value * by for value, by in zip(BEFORE, noise, strict=True)])
    (found,) = alerts.from_records(tmp_path)
    assert found.parameters.startswith("case-4")
    assert found.new / found.old == pytest.approx(1.1, rel=0.01)
    assert found.confidence > alerts.MIN_CONFIDENCE


def test_a_change_that_the_same_engine_shows_too_is_none(tmp_path: Path) -> None:
    noise = (1.4, 0.9, 1.1, 1.2, 1.3)
    write_records(tmp_path, BEFORE, [value * by for value, by in zip(BEFORE, noise, strict=True)])
    assert alerts.from_records(tmp_path) == []


def test_records_without_a_common_engine_need_more_than_a_machine_can_do(tmp_path: Path) -> None:
    write_records(tmp_path, BEFORE[-1:], [BEFORE[-1] * 1.6], [BEFORE[-1] * 1.6 * 3])
    (found,) = alerts.from_records(tmp_path)
    assert found.new / found.old == pytest.approx(3, rel=0.01)
    write_records(tmp_path / "less", BEFORE[-1:], [BEFORE[-1] * 1.6])
    assert alerts.from_records(tmp_path / "less") == []


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
    times: Any = names["Masks"]
    ratios: Any = names["Ratios"]
    assert times.params == ratios.params == (["listed"], ["llama-spm"])
    methods = [name for name in vars(times) if name.startswith("track_")]
    assert methods == ["track_tbm_p50", "track_tbm_p99", "track_ttfm", "track_consume"]
    for name in methods:
        twin = ratio_twin(f"masks.Masks.{name}")
        assert twin == f"masks.Ratios.{name}"
        assert hasattr(ratios, name)
        assert ratio_twin(twin) is None
    # A ratio to another engine is another benchmark's; a time is not.
    assert registry.get("wheel").sha256 in ratios.version
    assert (times.unit, ratios.unit) == ("ns", "ratio")
    (no_regressions,) = conf.regressions_first_commits
    assert re.match(no_regressions, "masks.Masks.track_ttfm(listed)@main")
    assert not re.match(no_regressions, "masks.Ratios.track_ttfm(listed)@main")


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
