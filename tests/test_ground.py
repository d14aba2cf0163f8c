"""Alerts since a release: the same histories as in test_alerts.py, on a fixed ground."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import made_results
import numpy as np
import pytest
from click.testing import CliRunner
from made_results import Value

from llgbench.asv import alerts, decisions, rises
from llgbench.asv.alert import Alert
from llgbench.asv.history import Repository
from llgbench.asv.levels import Level
from llgbench.commands.alerts import alerts_command
from llgbench.commands.site import site_command
from llgbench.errors import InputError

TIME = ("masks.Masks.track_tbm_p50", "ns")
RATIO = ("masks.Ratios.track_tbm_p50", "ratio")
SEEDS = range(3)
COMMITS, TAGS = 100, (0, 9, 30, 45, 60, 99)

Kind = Callable[[Sequence[float], int], tuple[str, str, Sequence[Value]]]


def noisy(levels: Sequence[float], seed: int) -> list[float]:
    noise = np.random.default_rng(seed).normal(0, 0.01, len(levels))
    return [level * float(np.exp(by)) for level, by in zip(levels, noise, strict=True)]


def times(levels: Sequence[float], seed: int) -> tuple[str, str, Sequence[Value]]:
    return (*TIME, [1000 * value for value in noisy(levels, seed)])


def ratios(levels: Sequence[float], seed: int) -> tuple[str, str, Sequence[Value]]:
    return (*RATIO, [(value, 2.576 * 0.01 * value) for value in noisy(levels, seed)])


kinds = pytest.mark.parametrize("kind", [times, ratios])
seeds = pytest.mark.parametrize("seed", SEEDS)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A repository of 100 commits with tags v0, v9, … at those of TAGS."""
    folder = tmp_path_factory.mktemp("history") / "repo"
    commits = made_results.write_history(folder, {"main": (None, COMMITS)})["main"]
    for number in TAGS:
        made_results.git(folder, "tag", f"v{number}", commits[number])
    return folder, commits


@pytest.fixture
def since(history: tuple[Path, list[str]], tmp_path: Path) -> Callable[..., list[Alert]]:
    """Return the alerts of a history since a tag."""
    folder, commits = history

    def find(made: tuple[str, str, Sequence[Value]], tag: str, **more: Any) -> list[Alert]:
        benchmark, unit, values = made
        results = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        made_results.write(results, benchmark, unit, values, commits[: len(values)])
        repository = Repository(folder, ("main",))
        return list(alerts.find(results, repository=repository, since_tag=tag, **more).alerts)

    return find


CREEP = [1.0] * 40 + [1.01**n for n in range(1, 11)] + [1.01**10] * 50


@kinds
@seeds
def test_a_creeping_slowdown_is_one_alert_as_long_as_it_lasts(
    since: Callable[..., list[Alert]], history: tuple[Path, list[str]], kind: Kind, seed: int
) -> None:
    at = history[1].index
    for night in (60, 80, 100):
        benchmark, unit, values = kind(CREEP, seed)
        (alert,) = since((benchmark, unit, values[:night]), "v30")
        assert alert.state == "new"
        assert 30 <= at(alert.before) <= 44
        assert 45 <= at(alert.after) <= 55
        assert alert.new / alert.old == pytest.approx(1.01**10, abs=0.015)


@kinds
@seeds
def test_what_was_mended_is_a_line_of_the_history(
    since: Callable[..., list[Alert]], history: tuple[Path, list[str]], kind: Kind, seed: int
) -> None:
    (alert,) = since(kind([1.0] * 40 + [1.1] * 20 + [1.0] * 40, seed), "v30")
    at = history[1].index
    assert alert.state == "closed"
    assert (at(alert.before), at(alert.after), at(alert.until)) == (39, 40, 60)


@seeds
def test_the_alert_of_the_newest_commit_stays(
    since: Callable[..., list[Alert]], history: tuple[Path, list[str]], seed: int
) -> None:
    benchmark, unit, values = ratios([1.0] * 98 + [1.12] * 2, seed)
    for night in (99, 100):
        (alert,) = since((benchmark, unit, values[:night]), "v60")
        assert (alert.state, alert.after) == ("new", history[1][98])


@kinds
@seeds
def test_an_accepted_alert_stays_accepted_when_the_history_is_refined(
    since: Callable[..., list[Alert]], tmp_path: Path, kind: Kind, seed: int
) -> None:
    benchmark, unit, values = kind([1.0] * 45 + [1.12] * 55, seed)
    coarse = [value if n % 4 == 0 else None for n, value in enumerate(values)]
    file = tmp_path / alerts.ACCEPTED
    decisions.accept(file, since((benchmark, unit, coarse), "v30"), "compiles eagerly")
    (alert,) = since((benchmark, unit, values), "v30", decided=decisions.read(file))
    assert (alert.state, alert.reason) == ("accepted", "compiles eagerly")


@pytest.mark.parametrize(
    ("metric", "before", "after", "states"),
    [(("grid.Verdicts.track_forbidden", "count"), 0, 6136, ["new"]),
     (("grid.Verdicts.track_accepted", "count"), 5, 1, ["new"]),
     (("masks.Sameness.track_masks", "yes"), 0, 1, ["better"]),
     (("decode.Decode.track_tokens_per_second", "tokens/s"), 1000, 1300, [])],
)  # fmt: skip
def test_facts_and_rates(
    since: Callable[..., list[Alert]], metric: tuple[str, str], before: float, after: float,
    states: list[str],
) -> None:  # fmt: skip
    values: Sequence[Value] = [float(before)] * 50 + [float(after)] * 50
    assert [alert.state for alert in since((*metric, values), "v45")] == states
    # What came before the tag is the ground.
    assert since((*metric, values), "v60") == []


@kinds
@seeds
def test_the_ground_is_the_release_and_not_the_best(
    since: Callable[..., list[Alert]], kind: Kind, seed: int
) -> None:
    slower_before = kind([1.0] * 20 + [1.2] * 80, seed)
    assert since(slower_before, "v30") == []
    (alert,) = since(slower_before, "v9")
    assert alert.new / alert.old == pytest.approx(1.2, abs=0.02)
    # Faster for a while, and then as the release was: no alert since it, one against the best.
    best = kind([1.0] * 50 + [0.8] * 25 + [1.0] * 25, seed)
    assert since(best, "v30") == []


@kinds
@seeds
def test_flat_noise_is_no_alert_on_any_night(
    since: Callable[..., list[Alert]], kind: Kind, seed: int
) -> None:
    benchmark, unit, values = kind([1.0] * 100, seed)
    for night in range(35, 101, 13):
        assert since((benchmark, unit, values[:night]), "v30") == []


def test_the_ground_is_the_same_however_many_commits_follow(
    since: Callable[..., list[Alert]],
) -> None:
    benchmark, unit, values = ratios([1.0] * 45 + [1.12] * 55, 1)
    old = {since((benchmark, unit, values[:night]), "v30")[0].old for night in (60, 80, 100)}
    assert max(old) - min(old) < 1e-3


def test_the_last_tag_is_that_of_the_branch(
    history: tuple[Path, list[str]], tmp_path: Path
) -> None:
    """A later tag on a branch that was not merged is none of main's."""
    folder = tmp_path / "repo"
    commits = made_results.write_history(folder, {"main": (None, 40), "old": ("main~30", 5)})
    for name, commit in (("v1", commits["main"][20]), ("v0.9.9", commits["old"][4])):
        made_results.git(folder, "tag", name, commit)
    made_results.git(folder, "tag", "main", commits["main"][2])  # named as a branch is
    results = made_results.write(
        tmp_path / "results", *ratios([1.2] * 10 + [1.0] * 20 + [1.2] * 10, 0), commits["main"]
    )
    repository = Repository(folder, ("main",))
    found = alerts.find(results, repository=repository, since_tag="")
    assert "commits of main after v1 are compared with it" in found.notes
    assert [alert.after for alert in found.alerts] == [commits["main"][30]]
    assert alerts.find(results, repository=repository, since_tag="main").notes
    for tag, message in (("v0.9.9", "is not a commit of main itself"), ("v7", "no tag 'v7'")):
        with pytest.raises(InputError, match=message):
            alerts.find(results, repository=repository, since_tag=tag)


def test_what_was_not_measured_at_the_tag_is_said(
    history: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, commits = history
    benchmark, unit, values = ratios([1.0] * 60 + [1.2] * 40, 0)
    repository = Repository(folder, ("main",))

    def notes(kept: range) -> str:
        some = [value if n in kept else None for n, value in enumerate(values)]
        results = made_results.write(tmp_path / f"{kept}", benchmark, unit, some, commits)
        found = alerts.find(results, repository=repository, since_tag="v30")
        assert [alert.state for alert in found.alerts] == ["new"]
        return "; ".join(found.notes)

    assert "1 series were not measured at the tag itself" in notes(range(1, 100, 2))
    assert "1 series have nothing at the tag or before" in notes(range(31, 100))


def test_a_feature_branch_and_another_python_are_series_of_their_own(tmp_path: Path) -> None:
    folder, results = tmp_path / "repo", tmp_path / "results"
    commits = made_results.write_history(folder, {"main": (None, 40), "feature": ("main~5", 10)})
    made_results.git(folder, "tag", "v1", commits["main"][20])
    levels = {"virtualenv-py3.12": 1.0, "virtualenv-py3.13": 1.4}
    for environment, level in levels.items():
        of = dict.fromkeys(commits["main"], level) | dict.fromkeys(commits["feature"], 1.6 * level)
        of |= dict.fromkeys(commits["main"][30:], 1.2 * level) if level > 1 else {}
        for name, value in of.items():
            made_results.write_commit(
                results, name, {RATIO[0]: (value, 0.01)}, environment=environment
            )
    made_results.write_index(results, dict([RATIO]))
    found = alerts.find(results, repository=Repository(folder, ("main",)), since_tag="v1")
    (alert,) = found.alerts
    assert alert.branch == "main"
    assert alert.environment.startswith("virtualenv-py3.13")
    assert alert.after == commits["main"][30]
    assert any(note.startswith("2 series have nothing at the tag") for note in found.notes)


def test_a_tag_requires_a_repository_that_has_it(tmp_path: Path) -> None:
    results = made_results.write(tmp_path / "results", *TIME, [1.0] * 5)
    for command in (alerts_command, site_command):
        done = CliRunner().invoke(command, ["--results", str(results), "--since-tag", "v1"])
        assert isinstance(done.exception, InputError)
        assert "--repo" in str(done.exception)
    untagged = tmp_path / "repo"
    commits = made_results.write_history(untagged, {"main": (None, 5)})["main"]
    results = made_results.write(tmp_path / "tagless", *TIME, [1.0] * 5, commits)
    arguments = ["--results", str(results), "--repo", str(untagged), "--since-tag"]
    done = CliRunner().invoke(alerts_command, arguments)
    assert "no commit of main has a tag" in str(done.exception)


def test_the_command_and_the_pages_take_the_last_tag(
    history: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, commits = history
    made = ratios([1.0] * 20 + [1.2] * 80, 0)
    results = made_results.write(tmp_path / "results", *made, commits)
    arguments = ["--results", str(results), "--repo", str(folder), "--json"]
    runner = CliRunner()
    best = json.loads(runner.invoke(alerts_command, arguments).stdout)
    last = json.loads(runner.invoke(alerts_command, ["--since-tag", *arguments]).stdout)
    assert (len(best["new"]), last["new"]) == (1, [])
    pages = ["--results", str(results), "--repo", str(folder), "--output", str(tmp_path / "site")]
    for more, said in (([], "class=new"), (["--since-tag", "v60"], "after v60 are compared")):
        assert runner.invoke(site_command, [*pages, *more]).exit_code == 0
        assert said in (tmp_path / "site" / "index.html").read_text()


def test_a_fixed_ground_takes_no_part_in_what_follows() -> None:
    """Neither what is better nor what is like it moves it: twenty steps of half the threshold."""
    rule = rises.Rule(0.05)
    ground = Level(0, 9, 0.0, 0.001)
    later = [Level(10 * n, 10 * n + 9, value, 0.001) for n, value in enumerate(
        (-0.2, 0.0, 0.04, 0.049, 0.051), 1)]  # fmt: skip
    (rise,) = rises.find(later, rule, fixed=ground)
    assert (rise.before, rise.since, rise.old, rise.new) == (29, 50, 0.0, 0.051)
    assert rises.find(later[:-1], rule, fixed=ground) == []
