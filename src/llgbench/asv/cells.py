"""What the benchmarks of one ASV run have measured: each part when it is asked for, and once.

ASV starts a process for every value. Measuring in each would take hours and compare variants
minutes apart; measuring all beforehand makes one benchmark as dear as all. So a part, such as a
case on a vocab under all variants, is measured by the first process that needs it, and kept for
the others in the folder that ASV gives a run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypedDict
from uuid import uuid4


class Samples(TypedDict):
    """Several values, of which ASV computes the median and its interval."""

    samples: list[float]
    number: int


# What ASV takes from a ``track_*`` benchmark; None: the sample does not carry it.
Value = float | Samples | None
# Metric name by name of a row; a string in place of the metrics says why there are none.
Values = dict[str, dict[str, Value] | str]


@dataclass(frozen=True)
class Run:
    """One run of ASV's.

    Attributes:
        folder: where its parts are kept; ASV removes it.
        mark: the fingerprint of the run's record.
        results: the folder of results that the record goes to; empty: the checkout's.
    """

    folder: str
    mark: str
    results: str = ""


def begin() -> Run:
    """Begin a run, from a ``setup_cache``: ASV calls it in a folder that the benchmarks share."""
    return Run(str(Path.cwd()), uuid4().hex[:16])


def kept(run: Run, part: str, measure: Callable[[], Values]) -> Values:
    """Return what was measured of a part; measure it where no process of this run has."""
    from llgbench import files

    path = Path(run.folder) / f"{part}.json"
    if not path.exists():
        files.write(path, json.dumps(measure(), allow_nan=False).encode())
    found: Values = files.read_json(path, Values)
    return found


@dataclass(frozen=True)
class Metrics:
    """The metrics of one row, as a benchmark returns them.

    Attributes:
        name: of the row.
        values: by metric; times in nanoseconds.
    """

    name: str
    values: Mapping[str, Value]

    def get(self, metric: str) -> float | Samples:
        """Return a metric; NaN, which is ASV's n/a, where the sample does not carry it.

        Raises:
            KeyError: there is no metric of that name.
        """
        value = self.values[metric]
        if value is None:
            # ``asv run --show-stderr`` shows it.
            print(f"{self.name}: the sample does not carry {metric}", file=sys.stderr)
            return float("nan")
        return value

    def seconds(self, metric: str) -> float | Samples:
        """Return a time in seconds, the unit that ASV scales; see :meth:`get`."""
        value = self.get(metric)
        if isinstance(value, float):
            return value / 1e9
        return Samples(samples=[ns / 1e9 for ns in value["samples"]], number=value["number"])


def row(values: Values, name: str) -> Metrics:
    """Return a row of a part.

    Raises:
        NotImplementedError: it has no metrics; ASV shows n/a, stderr says why.
    """
    found = values.get(name, "it was not measured")
    if isinstance(found, str):
        skip(f"{name}: {found}")
    return Metrics(name, found)


def skip(reason: str) -> NoReturn:
    """Refuse a benchmark that does not apply: ASV shows n/a, and the reason on stderr.

    Raises:
        NotImplementedError: always; from a benchmark's ``setup`` it is no failure.
    """
    raise NotImplementedError(reason)


def samples(values: list[float]) -> Samples | None:
    """Return samples as ASV takes them; None where there are none."""
    return {"samples": values, "number": 1} if values else None
