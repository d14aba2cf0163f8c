"""The two sides of a comparison as data, and what can be said of them without loading them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from llgbench.engines import spec

Name = Literal["base", "head"]
SIDES: tuple[Name, Name] = ("base", "head")

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Pair(Generic[T]):
    """The same thing of both sides."""

    base: T
    head: T

    def of(self, side: Name) -> T:
        """Return that of one side."""
        return self.base if side == "base" else self.head

    def map(self, function: Callable[[T], U]) -> Pair[U]:
        """Return what a function makes of each, the base first."""
        return Pair(function(self.base), function(self.head))


@dataclass(frozen=True)
class Side:
    """One side.

    Attributes:
        spec: as given.
        library: the engine's file.
        fallback: the grammar option that is switched on; None where none is.
        release: of the engine.
        sha256: of the library, in hex.
        commit: of the llguidance checkout; None where the engine is not built from one.
        engine: whose it is.
    """

    spec: str
    library: Path
    fallback: str | None
    release: str
    sha256: str
    commit: str | None = None
    engine: str = "llguidance"

    @property
    def options(self) -> dict[str, Any]:
        """Grammar options of this side."""
        return {self.fallback: True} if self.fallback else {}

    def __str__(self) -> str:
        commit = f", {self.commit[:10]}" if self.commit else ""
        return f"{self.spec} ({self.engine} {self.release}{commit}, {self.sha256[:12]})"

    def is_same_as(self, other: Side) -> bool:
        """Whether nothing could differ: the same library, under the same option."""
        return (self.sha256, self.fallback) == (other.sha256, other.fallback)

    def to_json(self) -> dict[str, Any]:
        """Return the side as plain data."""
        return {**asdict(self), "library": str(self.library)}


def _published(side: Side) -> bool | None:
    return spec.parse(side.spec).published


def caution(base: Side, head: Side) -> str | None:
    """Return what a reader of the table must know of how the two were built; None where nothing.

    A published wheel and a build of this machine differ by compiler and profile too, also where
    their sources are the same.
    """
    published = {_published(base), _published(head)}
    if published != {True, False}:
        return None
    return (
        "one side is a published wheel and the other was built here: compiler and profile differ "
        "as well, and a ratio is not of the sources alone"
    )


def same_sources(base: Side, head: Side) -> bool:
    """Whether the two are one release of llguidance, published and built here.

    ``stock`` is built from the release that is installed, without a change to llguidance.
    """
    names = {spec.parse(side.spec).name for side in (base, head)}
    return (
        spec.STOCK in names
        and {_published(base), _published(head)} == {True, False}
        and base.release == head.release
        and base.fallback == head.fallback
    )
