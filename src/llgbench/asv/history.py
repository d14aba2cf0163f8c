"""The order of commits: which branch a commit is on, and what comes before it there.

ASV keeps the date of a commit, to the second, and not its branch. Where the repository is at hand
the order is that of its history; else that of the dates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llgbench import files, git
from llgbench.errors import InputError, UnavailableError

# Where ASV is told what to measure; the folder of results lies beside it, or below.
_CONFIGURATIONS = ("asv.conf.json", "asv.conf.jsonc")

# Of commits that no branch has: they were rewritten, or never fetched.
UNKNOWN = "no branch"


@dataclass(frozen=True)
class History:
    """Where commits are.

    Attributes:
        places: branch and position there, by commit; empty where there is no repository.
    """

    places: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def branch(self, commit: str) -> str:
        """Return the branch of a commit; empty where nothing is known of branches."""
        return self.places.get(commit, (UNKNOWN, 0))[0] if self.places else ""

    def position(self, commit: str) -> int:
        """Return the position of a commit in its branch, 0 where it is unknown."""
        return self.places.get(commit, ("", 0))[1]


@dataclass(frozen=True)
class Repository:
    """A repository and the branches that are followed in it, by their first parents."""

    path: Path
    branches: tuple[str, ...]


def beside(results: Path) -> Repository | None:
    """Return what the ASV configuration beside a folder of results measures; None without one.

    Raises:
        InputError: the configuration cannot be read.
    """
    results = results.resolve()
    for folder in (results, *results.parents[:2]):
        for name in _CONFIGURATIONS:
            if (folder / name).is_file():
                return _configured(folder / name)
    return None


@dataclass(frozen=True)
class Release:
    """A tagged commit of a followed branch."""

    tag: str
    commit: str
    branch: str


def releases(repository: Repository, places: History, tag: str = "") -> dict[str, Release]:
    """Return the release that each followed branch is compared with, by branch.

    Args:
        repository: whose tags.
        places: its history.
        tag: its name; the last one of each branch, by its first parents, where empty.

    Raises:
        InputError: there is no such tag, or it is on no followed branch.
    """
    path, found = repository.path, {}
    for branch in repository.branches:
        last = tag or next(iter(_git(
            path, "describe", "--tags", "--abbrev=0", "--first-parent", _revision(path, branch),
            needed=False,
        )), "")  # fmt: skip
        if not last:
            continue
        # By its full name: a branch may be called as a tag is.
        commit = _git(path, "rev-parse", "--verify", "--quiet", f"refs/tags/{last}^{{commit}}",
                      needed=False)  # fmt: skip
        if not commit:
            raise InputError(f"{path} has no tag {last!r}")
        if places.branch(commit[0]) == branch:
            found[branch] = Release(last, commit[0], branch)
    branches = " or ".join(repository.branches)
    if not found and tag:
        raise InputError(f"{path}: {tag} is not a commit of {branches} itself; name a tag that is")
    if not found:
        raise InputError(f"{path}: no commit of {branches} has a tag; name one by --since-tag TAG")
    return found


def named(path: Path, branches: Sequence[str] = ()) -> Repository:
    """Return a repository with its branches, the one it is on where none are named.

    Raises:
        InputError: it is not a repository.
    """
    return Repository(path, tuple(branches) or (_current(path),))


def read(repository: Repository) -> History:
    """Return the history of a repository.

    What is on a followed branch is placed there; a commit that came to it by a merge, or is on
    another branch alone, is a history of its own.

    Raises:
        InputError: it is not a repository, or has no such branch.
    """
    path = repository.path
    places: dict[str, tuple[str, int]] = {}
    followed = []
    for branch in repository.branches:
        revision = _revision(path, branch)
        followed.append(revision)
        _place(places, branch, _commits(path, "--first-parent", revision))
    for name in _git(path, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes"):
        if name.endswith("/HEAD"):
            continue  # another name of a remote's branch
        label = name.removeprefix("refs/heads/").removeprefix("refs/remotes/")
        _place(places, label, _commits(path, "--first-parent", name, "--not", *followed))
    for branch, revision in zip(repository.branches, followed, strict=True):
        _place(places, f"merged into {branch}", _commits(path, "--topo-order", revision))
    return History(places)


def _place(places: dict[str, tuple[str, int]], branch: str, commits: Iterable[str]) -> None:
    for position, commit in enumerate(commits):
        places.setdefault(commit, (branch, position))


def _commits(path: Path, *arguments: str) -> list[str]:
    return _git(path, "rev-list", "--reverse", *arguments, "--")


def _revision(path: Path, branch: str) -> str:
    """Return the commit a branch is at; a checkout of a single commit has it as the remote's."""
    # A tag may be called as the branch is.
    for name in (f"refs/heads/{branch}", branch, f"refs/remotes/origin/{branch}"):
        found = _git(path, "rev-parse", "--verify", "--quiet", "--end-of-options",
                     f"{name}^{{commit}}", needed=False)  # fmt: skip
        if found:
            return found[0]
    _git(path, "rev-parse", "--git-dir")  # says what is wrong where it is not the branch
    raise InputError(f"{path} has no branch {branch!r}; --branch names another")


def _current(path: Path) -> str:
    """Return the branch a repository is on; ``HEAD`` where it is on none."""
    return _git(path, "rev-parse", "--abbrev-ref", "HEAD")[0]


def _git(path: Path, *arguments: str, needed: bool = True) -> list[str]:
    """Return the lines that git prints; none where it fails and that is not an error."""
    try:
        return git.ask(path, *arguments).decode(errors="replace").split("\n")[:-1]
    except UnavailableError as error:
        raise InputError(f"the order of commits requires git: {error}") from None
    except InputError as error:
        if not needed:
            return []
        raise InputError(f"{path}: {error}") from None


def _configured(path: Path) -> Repository | None:
    """Return the repository of an ASV configuration; None where it has been moved away."""
    from asv.config import Config
    from asv.util import UserError

    try:
        found = Config.load(str(path))
        branches: Sequence[str | None] = found.branches
        names = [str(branch) for branch in branches if branch not in (None, "HEAD")]
        repository = path.parent / str(found.repo)
    except (UserError, OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: {files.one_line(error)}") from None
    # ASV has a copy of what it fetched over the network.
    for place in (repository, path.parent / str(found.project)):
        if place.is_dir() and _git(place, "rev-parse", "--git-dir", needed=False):
            return named(place, names or (_default(place),))
    return None


def _default(path: Path) -> str:
    """Return the branch that a configuration without a name means.

    A clone has its remote's main branch, so that alerts keep their names on a feature branch.
    """
    name = "refs/remotes/origin/HEAD"
    found = _git(path, "symbolic-ref", "--quiet", "--short", name, needed=False)
    return found[0].removeprefix("origin/") if found else _current(path)
