"""What the levels of a series are compared with: a release of its branch, or its own best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llgbench.asv import history
from llgbench.asv.history import History, Release, Repository
from llgbench.asv.series import Point, Series
from llgbench.errors import InputError


class Ground:
    """What the series of a folder are compared with."""

    def __init__(
        self, places: History, repository: Repository | None, since_tag: str | None
    ) -> None:
        """Find the release of each followed branch.

        Args:
            places: the order of commits.
            repository: whose history that is.
            since_tag: the release, the last one of each branch where empty; None for none.

        Raises:
            InputError: there is no such tag, or no repository that has the commits.
        """
        self._places = places
        releases: Mapping[str, Release] = {}
        if since_tag is not None:
            if repository is None or not places.places:
                raise InputError(
                    "--since-tag requires the repository that has the tags and the measured "
                    "commits; --repo names it"
                )
            releases = history.releases(repository, places, since_tag)
        self._releases = releases
        self._without = 0
        self._earlier = 0

    def released(self, one: Series, points: Sequence[Point]) -> int:
        """Return how many points of a series its release has; 0 where it has none."""
        if not self._releases:
            return 0
        release = self._releases.get(one.branch)
        if release is None:
            self._without += 1
            return 0
        end = self._places.position(release.commit)
        count = sum(self._places.position(point.commit) <= end for point in points)
        self._without += count == 0
        self._earlier += count > 0 and points[count - 1].commit != release.commit
        return count

    def notes(self) -> Iterator[str]:
        """Yield what the series were compared with."""
        for release in self._releases.values():
            yield f"commits of {release.branch} after {release.tag} are compared with it"
        if self._earlier:
            yield (
                f"{self._earlier} series were not measured at the tag itself: they are compared "
                "with the newest commit before it"
            )
        if self._without:
            yield (
                f"{self._without} series have nothing at the tag or before: they are compared with "
                "their best earlier level"
            )
