"""Alerts: what has become worse over commits, found in ASV's results and in records.

Commits: a series is compared with its own best earlier level, or with a release, in the order of
its commits; where a benchmark's times have a ratio to a fixed engine beside them, by the ratio. A
fact that changes for the worse is an alert by itself. Records: the newest record of a machine
against the one before it, both of the same inputs. A decision that an alert is accepted is kept,
with its reason, in a file under version control.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from llgbench.asv import decisions, history, metrics, references, series, sittings
from llgbench.asv import results as asv_results
from llgbench.asv.alert import Alert, State, Subject
from llgbench.asv.commit_benchmarks import ratio_twin
from llgbench.asv.decisions import Decision
from llgbench.asv.ground import Ground
from llgbench.asv.history import History, Repository
from llgbench.asv.references import Carrier
from llgbench.asv.series import Point, Series
from llgbench.asv.watch import Watch
from llgbench.errors import InputError
from llgbench.records import record

# A change below this is not reported, however sure it is.
THRESHOLD = 0.05

# Beside results/, which it decides about.
ACCEPTED = "alerts.json"


@dataclass(frozen=True)
class Found:
    """What a folder of results has to tell.

    Attributes:
        alerts: in every state; those of ASV first, oldest first.
        notes: what a reader must know of how they were found, one line each.
    """

    alerts: tuple[Alert, ...]
    notes: tuple[str, ...] = ()

    def in_state(self, *states: State) -> list[Alert]:
        """Return the alerts in some states, in the order of the states."""
        return [alert for state in states for alert in self.alerts if alert.state == state]


def find(
    results: Path,
    threshold: float = THRESHOLD,
    *,
    decided: Sequence[Decision] = (),
    repository: Repository | None = None,
    since_tag: str | None = None,
) -> Found:
    """Find what has become worse in a folder of results.

    Args:
        results: ASV's ``results_dir``, or a folder that has it as ``asv``; records in ``records``.
        threshold: the least change of a time or a ratio, relative.
        decided: accepted alerts.
        repository: whose history orders the commits; that of the ASV configuration beside the
            results unless given.
        since_tag: compare commits with this tag's, or with the last tag's where empty, and not
            with the best earlier level.

    Raises:
        InputError: there are no results, no such tag, or the repository cannot be read.
        RecordError: a file of results cannot be read.
    """
    found = _find(results, threshold, decided, repository, since_tag)
    if found is None:
        raise InputError(
            f"{results}: neither results of ASV nor records; run: asv run, or name another folder "
            "by --results"
        )
    return found


def marks(results: Path) -> list[str]:
    """Return a line for every open alert of a folder, for reports; accepted ones say why.

    Raises:
        InputError: the repository beside the results cannot be read.
        RecordError: a file of results or of decisions cannot be read.
    """
    found = _find(results, THRESHOLD, decisions.read(results / ACCEPTED), None)
    if found is None:
        return []
    new, known = found.in_state("new"), found.in_state("accepted")
    return [f"**{alert}**" for alert in new] + [str(alert) for alert in known]


def _find(
    results: Path,
    threshold: float,
    decided: Sequence[Decision],
    repository: Repository | None,
    since_tag: str | None = None,
) -> Found | None:
    """Return what is found in a folder; None where it holds no results."""
    measured = asv_results.read(results)
    recorded = list(record.read_all(results / "records"))
    if not measured and not recorded:
        return None
    of_asv = _of_asv(results, measured, threshold, decided, repository, since_tag)
    of_records = [_decided(alert, decided) for alert in sittings.compare(recorded, threshold)]
    return Found((*of_asv.alerts, *of_records), of_asv.notes)


def _of_asv(
    results: Path,
    measured: Sequence[asv_results.Results],
    threshold: float,
    decided: Sequence[Decision],
    repository: Repository | None,
    since_tag: str | None,
) -> Found:
    known = asv_results.benchmarks(results)
    repository = repository or history.beside(results)
    places, notes = order(measured, repository)
    every, told = collect(results, measured, known, places, threshold)
    notes += told
    ground = Ground(places, repository, since_tag if measured else None)
    by_subject: dict[Subject, list[Decision]] = {}
    for decision in decided:
        by_subject.setdefault(decision.subject, []).append(decision)
    found: list[Alert] = []
    unusable = 0
    for one, points in sorted(every.items()):
        if series.beside(one, ratio_twin(one.benchmark)) in every:
            continue  # decided on the ratio
        unit = known[one.benchmark].unit if one.benchmark in known else ""
        watch = Watch(one, metrics.of(one.benchmark, unit), threshold)
        usable = [point for point in points if watch.usable(point)]
        unusable += len(points) - len(usable)
        released = ground.released(one, usable)
        found += watch.alerts(usable, by_subject.get(watch.subject, ()), released)
    notes += ground.notes()
    gone = {m.benchmark for one in measured for m in one.measurements} - set(known)
    if known and gone:
        notes.append(f"{len(gone)} benchmarks that ASV no longer lists are left out")
    if unusable:
        notes.append(f"{unusable} times or ratios of zero or below have no relative change")
    if len({one.commit for one in measured}) == 1:
        notes.append("one commit has results; a change requires two")
    return Found(tuple(sorted(found, key=lambda a: a.since)), tuple(notes))


def collect(
    results: Path,
    measured: Sequence[asv_results.Results],
    known: dict[str, asv_results.Benchmark],
    places: History,
    threshold: float = THRESHOLD,
) -> tuple[dict[Series, list[Point]], list[str]]:
    """Return every series of a folder of results, and what a reader must know of it.

    What was measured beside an earlier reference engine is carried over where it can be.

    Raises:
        RecordError: the file of reference engines is damaged.
    """
    carrier = Carrier(references.read(results / references.FILE), known, threshold)
    found = series.collect(measured, known, places, carrier.carry)
    return found, list(carrier.notes(measured))


def order(
    measured: Sequence[asv_results.Results], repository: Repository | None
) -> tuple[History, list[str]]:
    """Return the order of commits, and what a reader must know of it.

    Raises:
        InputError: the repository cannot be read.
    """
    if not measured:
        return History(), []
    if repository is None:
        return History(), [
            "no repository beside the results: commits are in the order of their dates, and "
            "branches are not told apart; --repo names one"
        ]
    places = history.read(repository)
    commits = {one.commit for one in measured}
    missing = commits - set(places.places)
    if missing == commits:
        return History(), [
            f"{repository.path} has none of these commits: they are in the order of their dates, "
            "and branches are not told apart"
        ]
    if missing:
        elsewhere = f"{len(missing)} commits are not in {repository.path}: a history of their own"
        return places, [elsewhere]
    return places, []


def _decided(alert: Alert, decided: Sequence[Decision]) -> Alert:
    """Return an alert of records with its decision: of the same series and the same record."""
    for one in decided:
        if one.subject == alert.subject and one.after == alert.after:
            return msgspec.structs.replace(alert, state="accepted", reason=one.reason)
    return alert
