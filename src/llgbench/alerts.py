"""Alerts: what has become slower over commits, found in ASV's results and in records.

Commits: the step detection that ``asv publish`` uses, on the same results; where a benchmark's
times have a ratio to a fixed engine beside them, on the ratio. Records: the newest
record of a machine against the one before it, both of the same inputs. A decision that an alert is
accepted is kept, with its reason, in a file under version control.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from llgbench import asv_results, records, stats
from llgbench.commit_benchmarks import ratio_twin
from llgbench.configuration import Configuration
from llgbench.errors import InputError, RecordError
from llgbench.records import Entry, Record

# A step below this is not reported, however sure it is.
THRESHOLD = 0.05

# An alert less sure than this is none; a folder of results has dozens of series to be wrong in.
MIN_CONFIDENCE = 0.99

# The spread of a time measured at one commit alone, relative: nothing but the machine's load moved
# single measurements by so much on a busy machine of two cores. The interval of its samples knows
# only the minute in which they were taken.
UNKNOWN_SPREAD = 0.3

# The unit of what is measured beside a fixed engine at the same time. Load moves both, so there
# the interval of the samples is the whole of what is not known.
RATIO = "ratio"

# Half of a normal distribution's 99% interval, in standard errors.
_HALF_99 = 2.576

# Beside results/, which it decides about.
ACCEPTED = "alerts.json"


@dataclass(frozen=True)
class Alert:
    """One regression.

    Attributes:
        source: ``asv`` or ``records``.
        machine: where it was measured.
        benchmark: its name; of records, the metric.
        parameters: of the benchmark, as one line.
        before: the commit (or record) that was still fast.
        after: the first that is slow.
        old: the value before, in ``unit``; of records, at the speed the machine had after.
        new: the value after.
        unit: as the benchmark gives it.
        confidence: 0 … 1, that the step is none of chance.
    """

    source: str
    machine: str
    benchmark: str
    parameters: str
    before: str
    after: str
    old: float
    new: float
    unit: str
    confidence: float

    @property
    def key(self) -> str:
        """What a decision refers to: the benchmark and where it stepped, not how far."""
        return " | ".join((self.source, self.machine, self.benchmark, self.parameters, self.after))

    def __str__(self) -> str:
        where = f" ({self.parameters})" if self.parameters else ""
        return (
            f"{self.benchmark}{where}: {self.before[:10]}..{self.after[:10]}, "
            f"{self.old:.4g} → {self.new:.4g} {self.unit} ({self.new / self.old - 1:+.1%}), "
            f"confidence {self.confidence:.0%}, on {self.machine}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the alert as plain data."""
        return {**asdict(self), "key": self.key}


@dataclass(frozen=True)
class Point:
    """What a benchmark found at one commit.

    Attributes:
        commit: its hash.
        value: in the benchmark's unit.
        error: the standard error of the value; None where nothing is known of it.
    """

    commit: str
    value: float
    error: float | None = None


# Points by date, by machine, benchmark and parameters.
_Series = dict[tuple[str, str, str], dict[int, Point]]


def from_asv(results: Path, threshold: float = THRESHOLD) -> list[Alert]:
    """Find regressions in a folder of ASV results.

    Raises:
        RecordError: a result file cannot be read.
    """
    known = asv_results.benchmarks(results)
    series = _series(results, known)
    found = []
    for (machine, name, parameters), by_date in sorted(series.items()):
        if (machine, ratio_twin(name), parameters) in series:
            continue  # decided on the ratio
        unit = str(known.get(name, {}).get("unit", ""))
        points = [by_date[date] for date in sorted(by_date)]
        for before, after in _steps(points, threshold, newest_alone=unit == RATIO):
            found.append(
                Alert(
                    "asv", machine, name, parameters, before[-1].commit, after[0].commit,
                    _level(before), _level(after), unit, _confidence(before, after),
                )
            )  # fmt: skip
    return [alert for alert in found if alert.confidence >= MIN_CONFIDENCE]


def _steps(
    points: Sequence[Point], threshold: float, *, newest_alone: bool
) -> Iterator[tuple[Sequence[Point], Sequence[Point]]]:
    """Yield the points of the level before and of the level after each upward step.

    Args:
        points: in order of their dates.
        threshold: the least step, relative.
        newest_alone: also hold the newest point against the level it was put into. Among many
            points ASV's detection takes a single one for an outlier until a second follows;
            where its error is known, that need not be waited for.
    """
    from asv.step_detect import detect_steps

    levels = [points[left:right] for left, right, *_ in detect_steps([p.value for p in points])]
    if newest_alone and len(levels[-1]) > 1:
        levels[-1:] = [levels[-1][:-1], levels[-1][-1:]]
    for before, after in itertools.pairwise(levels):
        if _level(after) > _level(before) * (1 + threshold):
            yield before, after


def _level(points: Sequence[Point]) -> float:
    return float(np.median([point.value for point in points]))


def _confidence(before: Sequence[Point], after: Sequence[Point]) -> float:
    """Return how sure a step is, from the distance of its levels in their own errors.

    The spread of a level's points is how far they lie apart or how little is known of each,
    whichever is more. A single point does not lie apart from any: it is taken to do so as the
    other level's do. Where nothing at all is known it is UNKNOWN_SPREAD of the value.
    """
    levels = (before, after)
    apart = [float(np.std([p.value for p in x], ddof=1)) for x in levels if len(x) > 1]
    variance = 0.0
    for level in levels:
        known = [float(np.mean(apart))] if apart else []
        errors = [point.error for point in level if point.error is not None]
        if len(errors) == len(level):
            known.append(float(np.sqrt(np.mean(np.square(errors)))))
        spread = max(known, default=UNKNOWN_SPREAD * _level(before))
        variance += spread**2 / len(level)
    distance = float(np.mean([p.value for p in after]) - np.mean([p.value for p in before]))
    if variance == 0:
        return 1.0
    return _below(distance / math.sqrt(variance))


def _series(results: Path, known: Mapping[str, Mapping[str, Any]]) -> _Series:
    """Return everything measured, but for what an earlier version of a benchmark measured."""
    from asv.results import iter_results

    found: _Series = {}
    # Not all folders: beside the machines' lie records.
    machines = [about.parent for about in sorted(results.glob("*/machine.json"))]
    try:
        for result in itertools.chain.from_iterable(iter_results(str(m)) for m in machines):
            machine, date = str(result.params["machine"]), int(result.date)
            for name in result.get_all_result_keys():
                about = known.get(name, {})
                version = result.benchmark_version.get(name)
                if version is not None and version != about.get("version", version):
                    continue
                parameters = result.get_result_params(name)
                values = result.get_result_value(name, parameters)
                spreads = result.get_result_stats(name, parameters) or [None] * len(values)
                combinations = itertools.product(*parameters) if parameters else [()]
                for combination, value, spread in zip(combinations, values, spreads, strict=False):
                    if isinstance(value, int | float) and math.isfinite(value) and value > 0:
                        shown = ", ".join(c.strip("'") for c in combination)
                        error = _standard_error(spread) if about.get("unit") == RATIO else None
                        point = Point(result.commit_hash, float(value), error)
                        found.setdefault((machine, name, shown), {})[date] = point
    except (OSError, ValueError, KeyError) as error:
        raise RecordError(f"{results}: ASV results cannot be read ({error})") from None
    return found


def _standard_error(spread: Mapping[str, Any] | None) -> float | None:
    """Return the standard error behind ASV's 99% interval of a median; None where it has none."""
    if not spread:
        return None
    low, high = spread.get("ci_99_a"), spread.get("ci_99_b")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    error = (high - low) / 2 / _HALF_99
    return error if math.isfinite(error) else None


def from_records(folder: Path, threshold: float = THRESHOLD) -> list[Alert]:
    """Compare each machine's newest record with the one before it of the same inputs.

    Cold masks and consume_token by their median over blocks of replays; a step counts where every
    block of the newer lies above every block of the older. Two records are two sittings, and the
    machine may be another in each. What ran on the very same engine in both tells how much: by how
    it changed in the middle the older times are corrected, and how far its changes lie apart is
    the error of one. Only what ran on another engine can be an alert.
    """
    by_machine: dict[str, list[Record]] = {}
    for record in records.read_all(folder):
        if record.complete:
            by_machine.setdefault(_machine(record), []).append(record)
    found = []
    for machine, of_machine in by_machine.items():
        if len(of_machine) >= 2:
            found += list(_between(machine, of_machine[-2], of_machine[-1], threshold))
    return found


def _between(machine: str, old: Record, new: Record, threshold: float) -> Iterator[Alert]:
    earlier = {e.configuration: e for e in old.entries if e.unavailable is None}
    pairs = [
        (earlier[entry.configuration], entry)
        for entry in new.entries
        if entry.unavailable is None and entry.configuration in earlier
    ]
    pairs = [pair for pair in pairs if _same_inputs(*pair)]
    for sample, q in itertools.product(("cold_mask", "cold_consume"), (50.0, 99.0)):
        changes = [change for pair in pairs if (change := _Change.of(*pair, sample, q)) is not None]
        drift, error = _drift([change for change in changes if change.same_engine])
        for change in changes:
            beyond = change.size - drift
            if change.same_engine or not change.apart or beyond <= math.log1p(threshold):
                continue
            confidence = _below(beyond / error if error else math.inf)
            if confidence >= MIN_CONFIDENCE:
                yield Alert(
                    "records", machine, f"{sample} p{q:g}", str(change.configuration),
                    old.path.stem, new.path.stem, change.was * math.exp(drift), change.now, "ns",
                    confidence,
                )  # fmt: skip


@dataclass(frozen=True)
class _Change:
    """What became of a percentile between two records, in nanoseconds."""

    configuration: Configuration
    was: float
    now: float
    apart: bool
    same_engine: bool

    @property
    def size(self) -> float:
        """The logarithm of the ratio."""
        return math.log(self.now / self.was)

    @classmethod
    def of(cls, before: Entry, after: Entry, sample: str, q: float) -> _Change | None:
        """Return the change of an entry; None where its samples cannot carry the percentile."""
        was, now = (stats.block_percentiles(e.samples[sample], q) for e in (before, after))
        if len(was) < 2 or len(now) < 2 or min(*was, *now) <= 0:
            return None
        return cls(
            after.configuration, float(np.median(was)), float(np.median(now)),
            min(now) > max(was), before.engine.get("sha256") == after.engine.get("sha256"),
        )  # fmt: skip


def _drift(unchanged: Sequence[_Change]) -> tuple[float, float]:
    """Return how the machine changed, as a logarithm, and the standard error of a change."""
    if len(unchanged) < 3:
        return 0.0, math.sqrt(2) * UNKNOWN_SPREAD
    sizes = [change.size for change in unchanged]
    return float(np.median(sizes)), float(np.std(sizes, ddof=1)) * math.sqrt(1 + 1 / len(sizes))


def _below(distance: float) -> float:
    """Return how much of a normal distribution lies below a distance in standard errors."""
    return 0.5 * (1 + math.erf(distance / math.sqrt(2)))


def _same_inputs(a: Entry, b: Entry) -> bool:
    keys = ("case_digest", "vocab_sha256")
    return all(a.facts.get(key) == b.facts.get(key) for key in keys)


def _machine(record: Record) -> str:
    machine = record.provenance.get("machine", {})
    return f"{machine.get('cpu')}, {machine.get('cores')} cores"


# ---- decisions ----


def accepted(path: Path) -> dict[str, dict[str, str]]:
    """Return the decisions of a file by the key of their alert; none where there is no file.

    Raises:
        RecordError: the file is damaged.
    """
    if not path.is_file():
        return {}
    try:
        table: dict[str, dict[str, str]] = json.loads(path.read_text())["accepted"]
        return {key: dict(value) for key, value in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RecordError(f"{path}: no list of accepted alerts; restore it from history") from None


def accept(path: Path, alerts: Iterable[Alert], reason: str, now: datetime | None = None) -> int:
    """Record that alerts are accepted, and why; return how many were new to the file.

    Raises:
        InputError: the reason is empty.
        RecordError: the file is damaged or cannot be written.
    """
    if not reason.strip():
        raise InputError("--accept needs a reason that a reader of the history understands")
    table = accepted(path)
    date = f"{now or datetime.now(UTC):%Y-%m-%d}"
    fresh = [alert for alert in alerts if alert.key not in table]
    for alert in fresh:
        table[alert.key] = {"reason": reason.strip(), "date": date, "alert": str(alert)}
    try:
        part = path.with_suffix(".part")
        part.write_text(
            json.dumps({"accepted": table}, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
        )
        part.replace(path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}") from None
    return len(fresh)


def split(alerts: Iterable[Alert], decisions: Mapping[str, Any]) -> tuple[list[Alert], list[Alert]]:
    """Return the new alerts and the accepted ones."""
    new: list[Alert] = []
    known: list[Alert] = []
    for alert in alerts:
        (known if alert.key in decisions else new).append(alert)
    return new, known


def marks(results: Path) -> list[str]:
    """Return a line for every alert of a folder of results, for reports; accepted ones say why."""
    decisions = accepted(results / ACCEPTED)
    found = [*from_asv(results), *from_records(results / "records")]
    new, known = split(found, decisions)
    lines = [f"**{alert}**" for alert in new]
    return lines + [f"{alert}; accepted: {decisions[alert.key]['reason']}" for alert in known]
