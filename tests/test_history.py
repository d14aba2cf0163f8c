"""The order of commits in real repositories."""

from __future__ import annotations

import json
from pathlib import Path

import made_results
import pytest

from llgbench.asv import history
from llgbench.asv.history import UNKNOWN, History, Repository
from llgbench.errors import InputError


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[str]]]:
    """Main; a feature from its middle; a side branch that was merged; all of one second."""
    folder = tmp_path_factory.mktemp("repository")
    made = made_results.write_history(
        folder, {"main": (None, 6), "feature": ("main~3", 4), "side": ("main~1", 2)}
    )
    made_results.git(
        folder, "-c", "user.name=t", "-c", "user.email=t@example.org", "merge", "--quiet",
        "--no-ff", "--message", "merge", "side",
    )  # fmt: skip
    made["merge"] = made_results.git(folder, "rev-parse", "main").split()
    made_results.git(folder, "branch", "--quiet", "-D", "side")
    return folder, made


def test_a_branch_is_its_first_parents_in_order(
    commits: tuple[Path, dict[str, list[str]]],
) -> None:
    folder, made = commits
    found = history.read(Repository(folder, ("main",)))
    main = [*made["main"], *made["merge"]]
    assert {found.branch(name) for name in main} == {"main"}
    assert sorted(set(main), key=found.position) == main
    assert {found.branch(name) for name in made["feature"]} == {"feature"}
    assert sorted(set(made["feature"]), key=found.position) == made["feature"]
    assert {found.branch(name) for name in made["side"]} == {"merged into main"}
    assert found.branch("0" * 40) == UNKNOWN


def test_without_a_repository_there_are_no_branches() -> None:
    assert (History().branch("0" * 40), History().position("0" * 40)) == ("", 0)


def test_a_checkout_that_has_the_branch_from_its_remote(
    commits: tuple[Path, dict[str, list[str]]], tmp_path: Path
) -> None:
    folder, made = commits
    made_results.git(tmp_path, "clone", "--quiet", str(folder), "clone")
    clone = tmp_path / "clone"
    made_results.git(clone, "checkout", "--quiet", "--detach")
    made_results.git(clone, "branch", "--quiet", "-D", "main")
    found = history.read(Repository(clone, ("main",)))
    assert found.branch(made["main"][0]) == "main"
    assert found.branch(made["feature"][-1]) == "origin/feature"


def test_the_branch_it_is_on_is_followed_where_none_is_named(
    commits: tuple[Path, dict[str, list[str]]],
) -> None:
    folder, _ = commits
    assert history.named(folder) == Repository(folder, ("main",))
    assert history.named(folder, ["feature"]) == Repository(folder, ("feature",))


def test_what_is_no_repository_or_branch_is_one_line(
    commits: tuple[Path, dict[str, list[str]]], tmp_path: Path
) -> None:
    folder, _ = commits
    for path, branch, message in (
        (folder, "dev", "no branch 'dev'; --branch"), (folder, "--all", "no branch"),
        (tmp_path, "main", "git"), (tmp_path / "nowhere", "main", "nowhere"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message) as refused:
            history.read(Repository(path, (branch,)))
        assert "\n" not in str(refused.value)


def test_the_configuration_beside_the_results_names_the_repository(
    commits: tuple[Path, dict[str, list[str]]], tmp_path: Path
) -> None:
    folder, _ = commits
    results = tmp_path / "results" / "reference"
    results.mkdir(parents=True)
    assert history.beside(results) is None
    conf = {"version": 1, "project": "p", "repo": str(folder), "branches": ["main", "feature"]}
    path = tmp_path / "asv.conf.json"
    path.write_text("// as ASV takes it\n" + json.dumps(conf))
    for place in (tmp_path / "results", results):
        assert history.beside(place) == Repository(folder, ("main", "feature"))
    for unnamed in (None, "HEAD"):  # the branch the checkout is on, by its name
        path.write_text(json.dumps({**conf, "branches": [unnamed]}))
        assert history.beside(results) == Repository(folder, ("main",))
    clone = tmp_path / "clone"
    made_results.git(tmp_path, "clone", "--quiet", str(folder), str(clone))
    made_results.git(clone, "checkout", "--quiet", "-b", "mine")
    path.write_text(json.dumps({**conf, "repo": "clone", "branches": ["HEAD"]}))
    assert history.beside(results) == Repository(clone, ("main",))  # the remote's, in a clone
    path.write_text(json.dumps({**conf, "repo": "https://example.org/p"}))
    assert history.beside(results) is None
    for text in ("{", "[]", '{"version": 1}', '{"version": 1, "repo": 1, "branches": 2}'):
        path.write_text(text)
        with pytest.raises(InputError, match=r"asv\.conf\.json"):
            history.beside(results)
