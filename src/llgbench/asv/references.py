"""How the reference engines of a history stand to each other, in a file beside its results.

A suite's ratios are to the wheel that was installed when it was written. With another wheel they
would begin anew. So the old reference is measured beside the new one, as any commit is, and what
was measured beside the old one is carried over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from llgbench import files
from llgbench.asv import chain, commit_benchmarks
from llgbench.asv.chain import Factor
from llgbench.asv.levels import DISTANCE
from llgbench.asv.results import Benchmark, Measurement, Results
from llgbench.compare.messages import Answer, Job
from llgbench.compare.side import Side
from llgbench.errors import FileError, InputError, RecordError

# Beside the results that it carries over.
FILE = "references.json"

# Ends the version of a benchmark that has a reference engine in it; its sha256 follows.
_BESIDE = ", beside "

# How often the old reference is measured: what is unsure of it is unsure of every commit.
_TIMES = 3

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Ratios = Annotated[list[_Positive], msgspec.Meta(min_length=2)]


class Link(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two reference engines, measured side by side.

    Attributes:
        old: sha256 of the one that a history was measured beside.
        new: sha256 of the one that it goes on beside.
        old_release: its release of llguidance.
        new_release: the same.
        date: of the measurement, ISO.
        ratios: old / new of each process, by row and metric.
        same_masks: whether both have the same masks, by row.
    """

    old: str
    new: str
    old_release: str
    new_release: str
    date: str
    ratios: dict[str, dict[str, _Ratios]]
    same_masks: dict[str, bool]


class _Links(msgspec.Struct, forbid_unknown_fields=True):
    links: list[Link]


def read(path: Path) -> tuple[Link, ...]:
    """Return the links of a file; none where there is no file.

    Raises:
        RecordError: the file is damaged.
    """
    if not path.exists():
        return ()
    try:
        return tuple(files.read_json(path, _Links).links)
    except FileError as error:
        raise RecordError(f"{error}; restore it, or remove it and chain again") from None


def add(path: Path, link: Link) -> None:
    """Keep a link, in place of an earlier one of the same two engines.

    Raises:
        RecordError: the file is damaged or cannot be written.
    """
    others = [one for one in read(path) if (one.old, one.new) != (link.old, link.new)]
    table = msgspec.to_builtins(_Links([*others, link]))
    encoded = msgspec.json.format(msgspec.json.encode(table), indent=1) + b"\n"
    files.write(path, encoded, error=RecordError)


def measure(
    old: Side,
    new: Side,
    cases: Sequence[str],
    vocabs: Sequence[str],
    *,
    work: Callable[[Job], Answer] | None = None,
    now: datetime | None = None,
) -> Link:
    """Measure an old reference beside the new one, as a commit is measured.

    Args:
        old: the reference so far.
        new: the installed wheel.
        cases: of the suite.
        vocabs: of the suite.
        work: does one process's job; a subprocess unless given.
        now: the time.

    Raises:
        InputError: both are one library, or nothing could be measured.
    """
    if old.sha256 == new.sha256:
        raise InputError(f"{old} is the reference engine already; there is nothing to carry over")
    ratios: dict[str, dict[str, list[float]]] = {}
    same: dict[str, bool] = {}
    why = "no process lived"
    for _ in range(_TIMES):
        values = commit_benchmarks.measure(
            cases, vocabs, new.sha256, library=old.library, work=work
        )
        for row, metrics in values.items():
            if isinstance(metrics, str):
                why = metrics
                continue
            same[row] = same.get(row, True) and metrics["same_masks"] == 1.0
            for name in commit_benchmarks.METRICS:
                value = metrics[f"{name} ratio"]
                if isinstance(value, dict):
                    ratios.setdefault(row, {}).setdefault(name, []).extend(value["samples"])
    if not ratios:
        raise InputError(f"{old} cannot be measured beside {new}: {why}")
    return Link(
        old=old.sha256, new=new.sha256, old_release=old.release, new_release=new.release,
        date=f"{now or datetime.now(UTC):%Y-%m-%d}", ratios=ratios, same_masks=same,
    )  # fmt: skip


def lines(link: Link) -> Iterator[str]:
    """Yield what a link says, by metric, and which of it is too unsure to be used."""
    for metric in commit_benchmarks.METRICS:
        found = [chain.factor(row[metric]) for row in link.ratios.values() if metric in row]
        if found:
            values, error = [one.value for one in found], max(one.error for one in found)
            yield (
                f"{metric}: llguidance {link.old_release} takes {min(values):.3f} to "
                f"{max(values):.3f} of the time of {link.new_release}, with a standard error of "
                f"{error:.1%} or less"
            )
    yield (
        f"an error of more than 1/{DISTANCE:g} of the threshold of llgbench alerts carries nothing "
        "over: measure again where nothing else runs"
    )


@dataclass(frozen=True)
class Carrier:
    """Takes what was measured beside an earlier reference to the one of today.

    Attributes:
        links: between references.
        known: ASV's index of benchmarks, whose versions name today's reference.
        threshold: the least change that matters: a factor that may be wrong by so much by chance
            carries nothing.
    """

    links: Sequence[Link]
    known: Mapping[str, Benchmark]
    threshold: float

    def carry(self, measured: Measurement) -> Measurement | None:
        """Return a measurement as one beside today's reference; None where nothing carries it."""
        wanted = self.known[measured.benchmark].version
        old, new = _reference(measured.version), _reference(wanted)
        if old is None or new is None or old[0] != new[0] or measured.value is None:
            return None
        found = self._between(old[1], new[1], measured, frozenset())
        if found is None or not self._sure(found):
            return None
        error = None if measured.error is None else measured.error * found.value
        return replace(measured, value=measured.value * found.value, error=error, version=wanted)

    def notes(self, results: Sequence[Results]) -> Iterator[str]:
        """Yield what a reader must know: what was carried over, and what is left out."""
        carried: dict[str, set[str]] = {}
        left: dict[str, set[str]] = {}
        unsure: set[str] = set()
        for one in results:
            for measured in one.measurements:
                old = _reference(measured.version)
                about = self.known.get(measured.benchmark)
                if old is None or about is None or measured.value is None:
                    continue
                if measured.version != about.version and _reference(about.version) is not None:
                    into = left if self.carry(measured) is None else carried
                    into.setdefault(old[1], set()).add(one.commit)
                    if any(not self._sure(by) for by in self._factors(old[1], measured)):
                        unsure.add(old[1])
        for sha256, commits in sorted(carried.items()):
            release = next(link.old_release for link in self.links if link.old == sha256)
            yield (
                f"ratios of {len(commits)} commits beside llguidance {release} are carried over to "
                "the reference engine of today"
            )
        for sha256, commits in sorted(left.items()):
            why = "llgbench asv --chain keeps them"
            if sha256 in unsure:
                why = f"its link is not sure enough for a threshold of {self.threshold:g}"
            yield (
                f"ratios of {len(commits)} commits are beside another reference engine "
                f"({sha256[:12]}) and left out; {why}"
            )

    def _sure(self, factor: Factor) -> bool:
        return factor.error * DISTANCE <= math.log1p(self.threshold)

    def _factors(self, old: str, measured: Measurement) -> Iterator[Factor]:
        for link in self.links:
            if link.old == old and (found := _factor(link, measured)) is not None:
                yield found

    def _between(
        self, old: str, new: str, measured: Measurement, seen: frozenset[str]
    ) -> Factor | None:
        if old == new:
            return chain.UNCHANGED
        for link in reversed(self.links):
            if link.old == old and link.new not in seen:
                first = _factor(link, measured)
                rest = self._between(link.new, new, measured, seen | {old})
                if first is not None and rest is not None:
                    return first.then(rest)
        return None


def _factor(link: Link, measured: Measurement) -> Factor | None:
    """Return what a link says of a measurement; None where it says nothing."""
    if len(measured.parameters) != 2:
        return None
    row = commit_benchmarks.parameter(*measured.parameters)
    *_, owner, method = measured.benchmark.split(".")
    if owner == commit_benchmarks.RATIOS:
        by_method = {commit_benchmarks.method(name): name for name in commit_benchmarks.METRICS}
        ratios = link.ratios.get(row, {}).get(by_method.get(method, ""))
        return None if ratios is None else chain.factor(ratios)
    # Whether masks are as the reference's: of equal references the same.
    return chain.UNCHANGED if link.same_masks.get(row) else None


def _reference(version: str | None) -> tuple[str, str] | None:
    """Return the two parts of a version: of the benchmark itself, and the reference's sha256."""
    own, beside, sha256 = (version or "").partition(_BESIDE)
    return (own, sha256) if beside else None
