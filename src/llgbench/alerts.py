"""Alerts: what has become slower over commits, found in ASV's results and in records.

Commits: the step detection that ``asv publish`` uses, on the same results. Records: the newest
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

from llgbench import records, stats
from llgbench.errors import InputError, RecordError
from llgbench.records import Entry, Record

# A step below this is not reported, however sure it is.
THRESHOLD = 0.05

# An alert less sure than this is none.
MIN_CONFIDENCE = 0.95

# The spread of a level of one commit, relative: nothing but the machine's load moved single
# measurements by so much on a busy machine of two cores.
UNKNOWN_SPREAD = 0.3

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
        old: the value before, in ``unit``.
        new: the value after.
        unit: as the benchmark gives it.
        confidence: 0 … 1, that the step is none of chance; see :func:`_confidence`.
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


def from_asv(results: Path, threshold: float = THRESHOLD) -> list[Alert]:
    """Find regressions in a folder of ASV results.

    Raises:
        RecordError: a result file cannot be read.
    """
    series: dict[tuple[str, str, str], dict[int, tuple[str, float]]] = {}
    units = _units(results)
    for machine, commit, date, name, parameters, value in _asv_values(results):
        at = series.setdefault((machine, name, parameters), {})
        at[date] = (commit, value)
    found = []
    for (machine, name, parameters), by_date in sorted(series.items()):
        points = [by_date[date] for date in sorted(by_date)]
        for before, after in _steps([value for _, value in points], threshold):
            old = float(np.median([v for _, v in points[before[0] : before[1]]]))
            new = float(np.median([v for _, v in points[after[0] : after[1]]]))
            found.append(
                Alert(
                    "asv", machine, name, parameters,
                    points[before[1] - 1][0], points[after[0]][0], old, new,
                    units.get(name, ""),
                    _confidence(
                        [v for _, v in points[before[0] : before[1]]],
                        [v for _, v in points[after[0] : after[1]]],
                    ),
                )
            )  # fmt: skip
    return [alert for alert in found if alert.confidence >= MIN_CONFIDENCE]


Span = tuple[int, int]


def _steps(values: Sequence[float], threshold: float) -> Iterator[tuple[Span, Span]]:
    """Yield the level before and the level after each upward step, as spans of positions."""
    from asv.step_detect import detect_steps

    levels = detect_steps(values)
    for before, after in itertools.pairwise(levels):
        if after[2] > before[2] * (1 + threshold):
            yield (before[0], before[1]), (after[0], after[1])


def _confidence(before: Sequence[float], after: Sequence[float]) -> float:
    """Return how sure a step is, from the distance of its levels in their own spreads.

    Where a level has one point its spread is not known: the other's is taken, and where neither
    has two, UNKNOWN_SPREAD of the value.
    """
    spreads = [float(np.std(x, ddof=1)) for x in (before, after) if len(x) > 1]
    spread = float(np.mean(spreads)) if spreads else UNKNOWN_SPREAD * float(np.mean(before))
    error = spread * math.sqrt(1 / len(before) + 1 / len(after))
    distance = float(np.mean(after)) - float(np.mean(before))
    if error == 0:
        return 1.0
    return 0.5 * (1 + math.erf(distance / error / math.sqrt(2)))


def _asv_values(results: Path) -> Iterator[tuple[str, str, int, str, str, float]]:
    """Yield (machine, commit, date, benchmark, parameters, value) of everything measured."""
    from asv.results import iter_results

    try:
        for result in iter_results(str(results)):
            for name in result.get_all_result_keys():
                parameters = result.get_result_params(name)
                values = result.get_result_value(name, parameters)
                combinations = itertools.product(*parameters) if parameters else [()]
                for combination, value in zip(combinations, values, strict=False):
                    if isinstance(value, int | float) and math.isfinite(value) and value > 0:
                        yield (
                            str(result.params["machine"]), result.commit_hash, int(result.date),
                            name, ", ".join(c.strip("'") for c in combination), float(value),
                        )  # fmt: skip
    except (OSError, ValueError, KeyError) as error:
        raise RecordError(f"{results}: ASV results cannot be read ({error})") from None


def _units(results: Path) -> dict[str, str]:
    path = results / "benchmarks.json"
    if not path.is_file():
        return {}
    table = json.loads(path.read_text())
    return {name: b.get("unit", "") for name, b in table.items() if isinstance(b, dict)}


def from_records(folder: Path, threshold: float = THRESHOLD) -> list[Alert]:
    """Compare each machine's newest record with the one before it of the same inputs.

    Cold masks and consume_token by their median over blocks of replays; a step counts where every
    block of the newer lies above every block of the older.
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
    for entry in new.entries:
        before = earlier.get(entry.configuration)
        if entry.unavailable is not None or before is None or not _same_inputs(before, entry):
            continue
        for sample in ("cold_mask", "cold_consume"):
            for q in (50.0, 99.0):
                was, now = (stats.block_percentiles(e.samples[sample], q) for e in (before, entry))
                if len(was) < 2 or len(now) < 2 or min(now) <= max(was):
                    continue
                a, b = float(np.median(was)), float(np.median(now))
                if b > a * (1 + threshold):
                    yield Alert(
                        "records", machine, f"{sample} p{q:g}", str(entry.configuration),
                        old.path.stem, new.path.stem, a, b, "ns", _confidence(was, now),
                    )  # fmt: skip


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
