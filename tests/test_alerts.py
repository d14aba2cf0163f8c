"""Alerts: histories whose alerts are known, decisions in a file, and the command on top."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import made_records
import made_results
import numpy as np
import pytest
from click.testing import CliRunner, Result
from made_results import Value, commit

from llgbench import paths
from llgbench.asv import alerts, decisions
from llgbench.asv.alert import Alert
from llgbench.asv.history import Repository
from llgbench.commands.alerts import alerts_command
from llgbench.commands.cli import main as llgbench
from llgbench.errors import InputError, LlgbenchError, RecordError

TIME = ("masks.Masks.track_tbm_p50", "ns")
RATIO = ("masks.Ratios.track_tbm_p50", "ratio")
SEEDS = range(3)

# A benchmark, its unit, and its value at every commit.
History = tuple[str, str, Sequence[Value]]


def noisy(levels: Sequence[float], seed: int, sd: float = 0.01) -> list[float]:
    noise = np.random.default_rng(seed).normal(0, sd, len(levels))
    return [level * float(np.exp(by)) for level, by in zip(levels, noise, strict=True)]


def times(levels: Sequence[float], seed: int) -> History:
    """A history of times, whose spread only the history itself can tell."""
    return (*TIME, [1000 * value for value in noisy(levels, seed)])


def ratios(levels: Sequence[float], seed: int) -> History:
    """A history of ratios with the interval that their samples give."""
    return (*RATIO, [(value, 2.576 * 0.01 * value) for value in noisy(levels, seed)])


kinds = pytest.mark.parametrize("kind", [times, ratios])
Kind = Callable[[Sequence[float], int], History]


def found(folder: Path, history: History, **more: Any) -> alerts.Found:
    made_results.write(folder, *history)
    return alerts.find(folder, **more)


def number(name: str) -> int:
    return int(name[:8], 16)


# ---- what must be found, and what must not, in a hundred commits ----


CREEP = [1.0] * 40 + [1.01**n for n in range(1, 11)] + [1.01**10] * 50


@kinds
@pytest.mark.parametrize("seed", SEEDS)
def test_a_creeping_slowdown_is_one_alert(tmp_path: Path, kind: Kind, seed: int) -> None:
    (alert,) = found(tmp_path, kind(CREEP, seed)).alerts
    assert alert.state == "new"
    assert 35 <= number(alert.before) <= 44
    assert 45 <= number(alert.after) <= 55
    assert alert.new / alert.old == pytest.approx(1.01**10, abs=0.015)


@kinds
@pytest.mark.parametrize("seed", SEEDS)
def test_a_creeping_slowdown_stays_the_same_alert_every_night(
    tmp_path: Path, kind: Kind, seed: int
) -> None:
    made_results.write(tmp_path, *kind(CREEP, seed))
    for night in range(100, 50, -4):
        made_results.only(tmp_path, night)
        (alert,) = alerts.find(tmp_path).alerts
        assert alert.state == "new"
        assert 35 <= number(alert.before) <= 44


@kinds
@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_mended_is_a_line_of_the_history(tmp_path: Path, kind: Kind, seed: int) -> None:
    levels = [1.0] * 40 + [1.1] * 20 + [1.0] * 40
    (alert,) = found(tmp_path, kind(levels, seed)).alerts
    assert alert.state == "closed"
    assert (number(alert.before), number(alert.after), number(alert.until)) == (39, 40, 60)
    assert alert.commits == 20


@pytest.mark.parametrize("seed", SEEDS)
def test_the_alert_of_the_newest_commit_stays_when_one_more_is_measured(
    tmp_path: Path, seed: int
) -> None:
    """Beside a fixed engine the newest commit does not wait for a second one."""
    (second,) = found(tmp_path, ratios([1.0] * 98 + [1.12] * 2, seed)).alerts
    made_results.only(tmp_path, 99)
    (first,) = alerts.find(tmp_path).alerts
    assert first.state == second.state == "new"
    assert (first.before, first.after) == (second.before, second.after) == (commit(97), commit(98))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lone_time_waits_for_a_second_one(tmp_path: Path, seed: int) -> None:
    made_results.write(tmp_path, *times([1.0] * 96 + [1.12] * 4, seed))
    for night in (100, 99, 98):
        made_results.only(tmp_path, night)
        (alert,) = alerts.find(tmp_path).alerts
        assert (alert.before, alert.after) == (commit(95), commit(96))
    made_results.only(tmp_path, 97)
    assert alerts.find(tmp_path).alerts == ()


@kinds
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_of_noise_and_of_what_is_faster(tmp_path: Path, kind: Kind, seed: int) -> None:
    assert found(tmp_path / "flat", kind([1.0] * 100, seed)).alerts == ()
    assert found(tmp_path / "faster", kind([1.0] * 60 + [0.7] * 40, seed)).alerts == ()
    assert found(tmp_path / "below", kind([1.0] * 60 + [1.02] * 40, seed)).alerts == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_more_tokens_per_second_are_no_alert_and_fewer_are(tmp_path: Path, seed: int) -> None:
    rate = ("decode.Decode.track_tokens_per_second", "tokens/s")
    more, fewer = ([1.0] * 60 + [by] * 40 for by in (1.3, 0.7))
    assert found(tmp_path / "more", (*rate, list(noisy(more, seed)))).alerts == ()
    (alert,) = found(tmp_path / "fewer", (*rate, list(noisy(fewer, seed)))).alerts
    assert (alert.state, number(alert.after)) == ("new", 60)
    assert alert.new / alert.old == pytest.approx(0.7, abs=0.02)


FORBIDDEN = ("grid.Verdicts.track_forbidden", "count")
ACCEPTED = ("grid.Verdicts.track_accepted", "count")
SAMENESS = ("masks.Sameness.track_masks", "yes")


@pytest.mark.parametrize(
    ("metric", "before", "after", "state"),
    [(FORBIDDEN, 0, 6136, "new"), (FORBIDDEN, 6136, 0, "better"), (FORBIDDEN, 6136, 6137, "new"),
     (ACCEPTED, 5, 1, "new"), (ACCEPTED, 3, 0, "new"), (ACCEPTED, 0, 3, "better"),
     (SAMENESS, 1, 0, "new"), (SAMENESS, 0, 1, "better")],
)  # fmt: skip
@pytest.mark.parametrize("newest", [1, 50])
def test_a_fact_that_changes_is_told_by_itself(
    tmp_path: Path, metric: tuple[str, str], before: float, after: float, state: str, newest: int
) -> None:
    values: Sequence[Value] = [float(before)] * (100 - newest) + [float(after)] * newest
    (alert,) = found(tmp_path, (*metric, values)).alerts
    assert (alert.state, alert.old, alert.new) == (state, before, after)
    assert (number(alert.before), number(alert.after)) == (99 - newest, 100 - newest)


def test_a_fact_that_is_right_again_is_closed(tmp_path: Path) -> None:
    values: Sequence[Value] = [0.0] * 50 + [6136.0] * 3 + [0.0] * 47
    (alert,) = found(tmp_path, (*FORBIDDEN, values)).alerts
    assert (alert.state, alert.until, alert.commits) == ("closed", commit(53), 3)


# ---- decisions ----


@kinds
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("levels", [[1.0] * 45 + [1.12] * 55, CREEP])
def test_an_accepted_alert_stays_accepted_when_commits_in_between_are_measured(
    tmp_path: Path, kind: Kind, seed: int, levels: list[float]
) -> None:
    benchmark, unit, values = kind(levels, seed)
    every = [value if n % 4 == 0 else None for n, value in enumerate(values)]
    coarse = found(tmp_path / "coarse", (benchmark, unit, every))
    assert [alert.state for alert in coarse.alerts] == ["new"]
    file = tmp_path / alerts.ACCEPTED
    assert decisions.accept(file, coarse.alerts, "compiles eagerly") == 1
    fine = found(tmp_path / "fine", (benchmark, unit, values), decided=decisions.read(file))
    assert [(alert.state, alert.reason) for alert in fine.alerts] == [
        ("accepted", "compiles eagerly")
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_rises_above_the_accepted_level_is_new(tmp_path: Path, seed: int) -> None:
    benchmark, unit, values = ratios([1.0] * 40 + [1.1] * 30 + [1.21] * 30, seed)
    early = found(tmp_path / "early", (benchmark, unit, values[:70]))
    file = tmp_path / alerts.ACCEPTED
    decisions.accept(file, early.alerts, "on purpose")
    late = found(tmp_path / "late", (benchmark, unit, values), decided=decisions.read(file))
    old, new = late.alerts
    assert (old.state, number(old.after)) == ("accepted", 40)
    assert (new.state, number(new.before), number(new.after)) == ("new", 69, 70)
    assert new.new / new.old == pytest.approx(1.1, abs=0.01)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_accepted_alert_that_was_mended_accepts_no_later_one(tmp_path: Path, seed: int) -> None:
    benchmark, unit, values = ratios([1.0] * 30 + [1.1] * 20 + [1.0] * 20 + [1.1] * 30, seed)
    file = tmp_path / alerts.ACCEPTED
    early = found(tmp_path / "early", (benchmark, unit, values[:50]))
    decisions.accept(file, early.alerts, "on purpose")
    late = found(tmp_path / "late", (benchmark, unit, values), decided=decisions.read(file))
    assert [(a.state, number(a.after)) for a in late.alerts] == [("closed", 30), ("new", 70)]


def test_an_accepted_fact_is_accepted_up_to_its_value(tmp_path: Path) -> None:
    values: Sequence[Value] = [0.0] * 50 + [8.0] * 25 + [9.0] * 25
    file = tmp_path / alerts.ACCEPTED
    early = found(tmp_path / "early", (*FORBIDDEN, values[:75]))
    decisions.accept(file, early.alerts, "a grammar with more tokens")
    late = found(tmp_path / "late", (*FORBIDDEN, values), decided=decisions.read(file))
    assert [(a.state, a.old, a.new) for a in late.alerts] == [("accepted", 0, 8), ("new", 8, 9)]


def an_alert(**more: Any) -> Alert:
    made: dict[str, Any] = {
        "source": "asv", "machine": "m", "environment": "e", "branch": "main", "benchmark": "b",
        "parameters": "p", "before": "1", "after": "2", "old": 1.0, "new": 2.0, "unit": "ns",
    }  # fmt: skip
    return Alert(**{**made, **more})


def test_a_decision_is_kept_with_its_reason_and_day(tmp_path: Path) -> None:
    file = tmp_path / "alerts.json"
    day = datetime(2026, 11, 30, tzinfo=UTC)
    assert decisions.accept(file, [an_alert()], "compiles\neagerly", day) == 1
    assert decisions.accept(file, [an_alert(state="closed")], "again", day) == 0
    (kept,) = decisions.read(file)
    assert (kept.reason, kept.date) == ("compiles eagerly", "2026-11-30")
    assert kept.subject == an_alert().subject
    # One line of a diff per thing decided.
    assert len(file.read_text().splitlines()) > 10


def test_a_decision_needs_a_reason_and_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "alerts.json"
    with pytest.raises(InputError, match="reason"):
        decisions.accept(file, [an_alert()], "  ")
    for text in ("[]", "", '{"accepted": {}}', '{"accepted": [{"reason": 1}]}'):
        file.write_text(text)
        with pytest.raises(RecordError, match="restore it") as refused:
            decisions.read(file)
        assert str(file) in str(refused.value)


# ---- series and points of their own ----


def test_another_python_or_engine_is_a_series_of_its_own(tmp_path: Path) -> None:
    values: Sequence[Value] = [1000.0, 1001.0, 1002.0] * 10
    slower: Sequence[Value] = [1400.0, 1401.0, 1402.0] * 10
    later = [commit(number) for number in range(30, 60)]
    others: dict[str, dict[str, Any]] = {
        "python": {"environment": "virtualenv-py3.13", "python": "3.13"},
        "engine": {"environment": "virtualenv-py3.12-llguidance1.9.0"},
        "unnamed": {"requirements": {"llguidance": "1.9.0"}},
    }
    for name, more in others.items():
        folder = tmp_path / name
        made_results.write(folder, *TIME, values)
        made_results.write(folder, *TIME, slower, later, **more)
        assert alerts.find(folder).alerts == (), name
    # The same values in one environment are an alert.
    made_results.write(tmp_path / "one", *TIME, [*values, *slower])
    assert len(alerts.find(tmp_path / "one").alerts) == 1


def test_another_machine_is_a_series_of_its_own(tmp_path: Path) -> None:
    for machine, by in (("slow", 1.4), ("fast", 1.0)):
        values: Sequence[Value] = [1000.0 * by] * 30
        made_results.write(tmp_path, *TIME, values, machine=machine)
    assert alerts.find(tmp_path).alerts == ()


def test_commits_are_in_the_order_of_their_branch(tmp_path: Path) -> None:
    """All commits are of one second, and the feature's lie between main's by every clock."""
    commits = made_results.write_history(
        tmp_path / "repo", {"main": (None, 100), "feature": ("main~40", 20)}
    )
    repository = Repository(tmp_path / "repo", ("main",))
    results = tmp_path / "results"
    level = dict.fromkeys(commits["main"][:70], 1.0) | dict.fromkeys(commits["main"][70:], 1.2)
    level |= dict.fromkeys(commits["feature"], 1.5)
    for at, name in enumerate(sorted(level)):  # measured in an order that means nothing
        values = {RATIO[0]: (level[name], 0.01)}
        made_results.write_commit(results, name, values, started_ms=at)
    made_results.write_index(results, dict([RATIO]))
    (alert,) = alerts.find(results, repository=repository).alerts
    assert alert.branch == "main"
    assert (alert.before, alert.after) == (commits["main"][69], commits["main"][70])
    assert alert.commits == 30  # no point of the hundred is lost
    done = run("--results", results, "--repo", tmp_path / "repo", "--branch", "main", "--json")
    assert json.loads(done.stdout)["new"] == [alert.to_json()]
    # A configuration beside the results names the repository too.
    conf = {"version": 1, "project": "p", "repo": "repo", "branches": ["main"]}
    (tmp_path / "asv.conf.json").write_text(json.dumps(conf))
    assert alerts.find(results).alerts == (alert,)


def test_a_feature_branch_is_compared_with_itself(tmp_path: Path) -> None:
    commits = made_results.write_history(
        tmp_path / "repo", {"main": (None, 20), "feature": ("main~5", 20)}
    )
    values = dict.fromkeys(commits["main"], 1.0) | dict.fromkeys(commits["feature"], 1.0)
    values |= dict.fromkeys(commits["feature"][10:], 1.3)
    for name, value in values.items():
        made_results.write_commit(tmp_path / "results", name, {RATIO[0]: (value, 0.01)})
    made_results.write_index(tmp_path / "results", dict([RATIO]))
    repository = Repository(tmp_path / "repo", ("main",))
    (alert,) = alerts.find(tmp_path / "results", repository=repository).alerts
    assert (alert.branch, alert.after) == ("feature", commits["feature"][10])


def test_two_commits_in_one_second_are_two_points(tmp_path: Path) -> None:
    """Without a repository the order is that of the dates, then of the measurements."""
    for at in range(40):
        made_results.write_commit(
            tmp_path, commit(1000 - at), {RATIO[0]: (1.0 if at < 20 else 1.2, 0.01)},
            date_ms=made_results.FIRST_MS + at // 2 * 1000, started_ms=at,
        )  # fmt: skip
    made_results.write_index(tmp_path, dict([RATIO]))
    result = alerts.find(tmp_path)
    (alert,) = result.alerts
    assert (alert.after, alert.commits) == (commit(1000 - 20), 20)
    assert any("no repository" in note for note in result.notes)


def test_a_repository_without_these_commits_is_said(tmp_path: Path) -> None:
    made_results.write_history(tmp_path / "repo", {"main": (None, 3)})
    made_results.write(tmp_path / "results", *TIME, [1.0] * 5)
    repository = Repository(tmp_path / "repo", ("main",))
    assert any("none of these" in n for n in alerts.find(
        tmp_path / "results", repository=repository).notes)  # fmt: skip
    for branch, path, message in (("dev", "repo", "no branch 'dev'"), ("main", "results", "git")):
        with pytest.raises(InputError, match=message):
            alerts.find(tmp_path / "results", repository=Repository(tmp_path / path, (branch,)))


# ---- what decides ----


def both(folder: Path, time: Sequence[float], ratio: Sequence[float], version: str = "1") -> Path:
    """Write times with their ratios; the ratio's interval is value ± 1%."""
    for at, (slow, by) in enumerate(zip(time, ratio, strict=True)):
        made_results.write_commit(
            folder, commit(at), {TIME[0]: slow, RATIO[0]: (by, 0.01)},
            date_ms=made_results.FIRST_MS + at * made_results.DAY_MS,
            version="1" if at < len(time) // 2 else version,
        )  # fmt: skip
    made_results.write_index(folder, dict([TIME, RATIO]), version)
    return folder


LOADED = [100.0, 101.0, 99.0, 100.0, 100.5] * 2 + [220.0, 230.0, 225.0, 222.0, 226.0] * 2


def test_load_that_hits_both_engines_is_no_alert(tmp_path: Path) -> None:
    """Each commit is measured alone: times of the later ones doubled, ratios did not."""
    both(tmp_path, LOADED, noisy([1.0] * 20, 0, 0.003))
    assert alerts.find(tmp_path).alerts == ()
    # Without the ratio beside them the same times are one.
    made_results.write(tmp_path / "alone", *TIME, list(LOADED))
    assert [a.benchmark for a in alerts.find(tmp_path / "alone").alerts] == [TIME[0]]


def test_four_releases_are_enough_where_the_errors_are_known(tmp_path: Path) -> None:
    (alert,) = alerts.find(both(tmp_path, LOADED[8:12], [1.0, 1.003, 0.998, 1.2])).alerts
    assert (alert.benchmark, alert.after) == (RATIO[0], commit(3))
    wide = [(value, 0.5) for value in (1.0, 1.003, 0.998, 1.2)]
    made_results.write(tmp_path / "wide", *RATIO, wide)
    assert alerts.find(tmp_path / "wide").alerts == ()
    # Four times tell nothing of how far times move.
    made_results.write(tmp_path / "times", *TIME, [100.0, 101.0, 150.0, 150.0])
    assert alerts.find(tmp_path / "times").alerts == ()


def test_another_reference_begins_another_history(tmp_path: Path) -> None:
    stepped = [1.0, 1.001, 1.3, 1.301]
    assert len(alerts.find(both(tmp_path / "same", LOADED[:4], stepped)).alerts) == 1
    assert alerts.find(both(tmp_path / "other", LOADED[:4], stepped, "2")).alerts == ()


def test_values_that_have_no_relative_change_are_counted(tmp_path: Path) -> None:
    made_results.write(tmp_path, *RATIO, [1.0, 0.0, -1.0, 1.0])
    assert any(note.startswith("2 times or ratios") for note in alerts.find(tmp_path).notes)


# ---- records ----

# Medians of cold_mask of five configurations; the last one's engine is another in each record.
BEFORE = (1_000, 20_000, 3_000, 70_000, 5_000)


def write_records(folder: Path, *sittings: Sequence[float]) -> Path:
    for at, medians in enumerate(sittings):
        entries = [
            made_records.entry(
                case=f"case-{n}", mask=[[round(median + i % 5)] * 20 for i in range(20)]
            )
            for n, median in enumerate(medians)
        ]
        entries[-1] = replace(entries[-1], engine={"name": "own", "sha256": f"{at:064x}"})
        made_records.record(folder / "records", *entries, mark=f"mark-{at}")
    return folder


def times_by(*factors: float) -> list[float]:
    return [value * by for value, by in zip(BEFORE, factors, strict=True)]


def test_a_slower_machine_is_no_alert(tmp_path: Path) -> None:
    write_records(tmp_path, BEFORE, times_by(1.31, 1.29, 1.3, 1.3, 1.31))
    assert alerts.find(tmp_path).alerts == ()


def test_an_engine_that_is_slower_than_the_machine_has_become_is_one(tmp_path: Path) -> None:
    write_records(tmp_path, BEFORE, times_by(1.31, 1.29, 1.3, 1.3, 1.3 * 1.1))
    (alert,) = alerts.find(tmp_path).alerts
    assert alert.parameters.startswith("case-4")
    assert alert.new / alert.old == pytest.approx(1.1, rel=0.01)
    file = tmp_path / alerts.ACCEPTED
    decisions.accept(file, [alert], "on purpose")
    (again,) = alerts.find(tmp_path, decided=decisions.read(file)).alerts
    assert (again.state, again.reason) == ("accepted", "on purpose")


def test_a_change_that_the_same_engine_shows_too_is_none(tmp_path: Path) -> None:
    write_records(tmp_path, BEFORE, times_by(1.4, 0.9, 1.1, 1.2, 1.3))
    assert alerts.find(tmp_path).alerts == ()


def test_records_without_a_common_engine_need_more_than_a_machine_can_do(tmp_path: Path) -> None:
    one = BEFORE[-1]
    write_records(tmp_path / "more", [one], [one * 1.6], [one * 1.6 * 3])
    (alert,) = alerts.find(tmp_path / "more").alerts
    assert alert.new / alert.old == pytest.approx(3, rel=0.01)
    write_records(tmp_path / "less", [one], [one * 1.6])
    assert alerts.find(tmp_path / "less").alerts == ()


def test_a_record_of_no_bytes_is_passed_over(tmp_path: Path) -> None:
    """A disk that was full when a run began leaves one."""
    write_records(tmp_path, BEFORE)
    (tmp_path / "records" / "20261130T155124-feed.jsonl").touch()
    assert alerts.find(tmp_path).alerts == ()


# ---- the command ----


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(alerts_command, [str(argument) for argument in arguments])


def test_the_command_says_what_since_when_and_between_which_commits(tmp_path: Path) -> None:
    benchmark, unit, values = ratios([1.0] * 60 + [1.2] * 40, 0)
    made_results.write(tmp_path, benchmark, unit, values)
    done = run("--results", tmp_path)
    assert done.exit_code == 1
    # The table is folded to 100 columns: all of one alert, in a line for each part of its columns.
    lines = [line for line in done.stdout.splitlines() if line.startswith("NEW")]
    for part in (benchmark, "listed", "runner", "+20", "ratio", "open since 2024-01-13",
                 f"{commit(59)[:10]}..{commit(60)[:10]}", "40 commits"):  # fmt: skip
        assert any(part in line for line in lines)
    assert "1 new alert," in done.stdout
    done = run("--results", tmp_path, "--accept", "masks gain more")
    assert done.exit_code == 0
    assert "accepted (masks gain more)" in done.stdout
    found = json.loads(run("--results", tmp_path, "--json").stdout)
    assert [len(found[state]) for state in ("new", "accepted", "closed", "better")] == [0, 1, 0, 0]
    assert found["accepted"][0]["after"] == commit(60)


def test_a_match_limits_what_is_listed_and_accepted(tmp_path: Path) -> None:
    for at in range(20):
        made_results.write_commit(
            tmp_path, commit(at), {FORBIDDEN[0]: float(at > 9), ACCEPTED[0]: float(at < 9)},
            date_ms=made_results.FIRST_MS + at * made_results.DAY_MS,
        )  # fmt: skip
    made_results.write_index(tmp_path, dict([FORBIDDEN, ACCEPTED]))
    assert run("--results", tmp_path, "--match", "forbidden", "--accept", "why").exit_code == 0
    assert run("--results", tmp_path, "--match", "forbidden").exit_code == 0
    assert run("--results", tmp_path).exit_code == 1


def test_a_folder_without_results_is_no_folder_without_alerts(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    made_results.write_index(tmp_path / "index", dict([TIME]))
    (tmp_path / "machine" / "vm").mkdir(parents=True)
    (tmp_path / "machine" / "vm" / "machine.json").write_text('{"machine": "vm", "version": 1}')
    (tmp_path / "records" / "records").mkdir(parents=True)
    for name in ("empty", "index", "machine", "records", "missing"):
        done = run("--results", tmp_path / name)
        assert isinstance(done.exception, LlgbenchError), name
        assert str(tmp_path / name) in str(done.exception)
    assert alerts.marks(tmp_path / "empty") == []


def test_newest_results_that_are_cut_short_are_no_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark, unit, values = ratios([1.0] * 4 + [1.5] * 4, 0)
    made_results.write(tmp_path, benchmark, unit, values)
    newest = sorted((tmp_path / "runner").glob("0*.json"))[4:]
    for path in newest:
        path.write_bytes(path.read_bytes()[:100])
    monkeypatch.setattr("sys.argv", ["llgbench", "alerts", "--results", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        llgbench()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert newest[0].name in said.err


@pytest.mark.parametrize("word", ["nan", "inf", "-1", "x"])
def test_a_threshold_is_a_finite_number(word: str) -> None:
    assert run("--threshold", word).exit_code == 2


def test_marks_are_lines_for_a_report(tmp_path: Path) -> None:
    made_results.write(tmp_path, *FORBIDDEN, [0.0] * 5 + [1.0] * 5)
    (line,) = alerts.marks(tmp_path)
    assert line.startswith("**grid.Verdicts.track_forbidden (listed) on runner")
    decisions.accept(tmp_path / alerts.ACCEPTED, alerts.find(tmp_path).alerts, "on purpose")
    (line,) = alerts.marks(tmp_path)
    assert "on purpose" in line


def test_the_example_of_the_documentation_is_what_the_command_prints(tmp_path: Path) -> None:
    commits = made_results.write_history(tmp_path / "repo", {"main": (None, 100)})["main"]
    mended = [1.0] * 40 + [1.1] * 20 + [1.0] * 40
    histories = {
        "masks.Ratios.track_consume": ratios(CREEP, 0)[2],
        "masks.Sameness.track_masks": [1.0] * 90 + [0.0] * 10,
        "masks.Ratios.track_ttfm": ratios(mended, 1)[2],
    }
    results = tmp_path / "results"
    for number, name in enumerate(commits):
        values = {benchmark: history[number] for benchmark, history in histories.items()}
        date_ms = made_results.FIRST_MS + number * made_results.DAY_MS
        made_results.write_commit(results, name, values, date_ms=date_ms)
    made_results.write_index(
        results, {name: "yes" if "Sameness" in name else "ratio" for name in histories}
    )
    done = run("--results", results, "--repo", tmp_path / "repo")
    assert done.exit_code == 1
    page = (paths.root() / "docs" / "ci.md").read_text(encoding="utf-8")
    example = page.split("`llgbench alerts` answers like this", 1)[1].split("```\n")[1]
    assert done.output == example
