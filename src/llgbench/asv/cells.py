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
from typing import Any, NoReturn
from uuid import uuid4

# What ASV takes from a ``track_*`` benchmark: a number, or ``{"samples": […], "number": 1}``, whose
# median and interval ASV computes. None: the sample does not carry it.
Value = float | dict[str, Any] | None
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

    def get(self, metric: str) -> float | dict[str, Any]:
        """Return a metric; NaN, which is ASV's n/a, where the sample does not carry it.

        Raises:
            KeyError: there is no metric of that name.
        """
        value = self.values[metric]
        if value is None:
            say(f"{self.name}: the sample does not carry {metric}")
            return float("nan")
        return value

    def seconds(self, metric: str) -> float | dict[str, Any]:
        """Return a time in seconds, the unit that ASV scales; see :meth:`get`."""
        value = self.get(metric)
        if isinstance(value, float):
            return value / 1e9
        return {**value, "samples": [sample / 1e9 for sample in value["samples"]]}


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
    """Say why a benchmark does not apply; ASV itself shows no more than n/a.

    Raises:
        NotImplementedError: always; from a benchmark's ``setup`` it is no failure.
    """
    say(reason)
    raise NotImplementedError(reason)


def say(line: str) -> None:
    """Write a line on stderr, which ``asv run --show-stderr`` shows."""
    print(line, file=sys.stderr)


def samples(values: list[float]) -> Value:
    """Return samples as ASV takes them; None where there are none."""
    return {"samples": values, "number": 1} if values else None
