"""ASV's result files, read as plain values; asv itself is not imported.

Every file is read or refused with its name; none is passed over. What they hold is documented by
ASV as version 2 of its result files: JSON with NaN in it, a row per benchmark.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from llgbench.asv import result_files
from llgbench.asv.result_files import text_of
from llgbench.errors import RecordError

# The folder of a checkout's results/ that ASV owns (``results_dir`` of asv.conf.json).
FOLDER = "asv"

# ASV's name of a result file: the commit, then the environment.
_RESULT_FILE = re.compile(r"[0-9a-f]{7,40}-.+\.json")

# More combinations of parameters than any benchmark has; a damaged file may claim any number.
_MAX_COMBINATIONS = 100_000

# Half of a normal distribution's 99% interval, in standard errors.
_HALF_99 = 2.576


@dataclass(frozen=True)
class Benchmark:
    """What ASV's index knows of a benchmark; ``version`` is None where it names none."""

    unit: str
    version: str | None


@dataclass(frozen=True)
class Measurement:
    """One benchmark with one choice of parameters, in one file.

    Attributes:
        benchmark: such as ``masks.Masks.track_tbm_p50``.
        parameters: as text, in the benchmark's order.
        value: in the benchmark's unit; None where it has none.
        error: the standard error behind ASV's 99% interval; None where it keeps none.
        version: of the benchmark; None where the file names none.
        started_ms: when it was measured, milliseconds since 1970; 0 where that is unknown.
        missing: ``n/a`` where the benchmark does not apply, ``failed``, or empty.
    """

    benchmark: str
    parameters: tuple[str, ...]
    value: float | None
    error: float | None
    version: str | None
    started_ms: int
    missing: str


@dataclass(frozen=True)
class Results:
    """One file: what was measured at one commit, in one environment, on one machine.

    Attributes:
        path: the file.
        machine: ASV's name for it.
        environment: the environment's name, with its Python and packages where those are not in
            the name.
        commit: the full hash.
        date_ms: of the commit, milliseconds since 1970; commits of one second share it.
        measurements: by benchmark and parameters.
    """

    path: Path
    machine: str
    environment: str
    commit: str
    date_ms: int
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True)
class AsvValue:
    """One benchmark with one choice of parameters.

    Attributes:
        machine: ASV's name for it.
        commit: what was measured, the full hash.
        benchmark: such as ``masks.Trace.track_p99``.
        parameters: as text, in the benchmark's order.
        value: in the unit; None where it has none.
        unit: such as ``seconds``; empty where ASV knows none.
        missing: ``n/a`` where the benchmark does not apply, ``failed``, or empty.
    """

    machine: str
    commit: str
    benchmark: str
    parameters: tuple[str, ...]
    value: float | None
    unit: str
    missing: str


def folder_of(results: Path) -> Path:
    """Return where ASV's files lie: in ``results/asv`` of a checkout, else in the folder itself."""
    inner = results / FOLDER
    # A machine may be called so, too.
    return inner if inner.is_dir() and not (inner / "machine.json").exists() else results


def read(results: Path) -> list[Results]:
    """Read every result file of a folder, of all machines.

    Args:
        results: ASV's ``results_dir``, or the folder that has it as ``asv``.

    Raises:
        RecordError: a file cannot be read, is damaged, or of another version of ASV.
    """
    folder = folder_of(results)
    if folder != results:
        for about in results.glob("*/machine.json"):
            raise RecordError(
                f"{about.parent}: ASV's results lie in {folder}; move the machine's folder there"
            )
    found = []
    for place in sorted(path for path in folder.glob("*") if path.is_dir()):
        about = place / "machine.json"
        paths = sorted(path for path in place.glob("*.json") if path.name != about.name)
        if about.exists():
            machine = text_of(result_files.decoded(about, result_files.Machine).machine)
            found += [_results(path, machine) for path in paths]
        elif any(_RESULT_FILE.fullmatch(path.name) for path in paths):
            raise RecordError(
                f"{about}: it is missing, beside results of ASV; restore it, or run: asv machine"
            )
    return found


def read_asv(folder: Path) -> list[AsvValue]:
    """Return the values of the newest commit that each machine has results of.

    Args:
        folder: ASV's ``results_dir``, or the folder that has it as ``asv``; what else lies there
            is passed over.

    Raises:
        RecordError: a result file is damaged, or of another version of ASV.
    """
    known = benchmarks(folder)
    by_machine: dict[str, list[Results]] = {}
    for results in read(folder):
        by_machine.setdefault(results.machine, []).append(results)
    found: list[AsvValue] = []
    for machine, of_machine in sorted(by_machine.items()):
        newest = max((results.date_ms, results.commit) for results in of_machine)[1]
        found += [
            AsvValue(
                machine, newest, one.benchmark, one.parameters, one.value,
                known[one.benchmark].unit if one.benchmark in known else "", one.missing,
            )
            for results in of_machine
            if results.commit == newest
            for one in results.measurements
        ]  # fmt: skip
    return found


def benchmarks(results: Path) -> dict[str, Benchmark]:
    """Return what ASV knows of each benchmark, by name; nothing where it has no index.

    Raises:
        RecordError: the index is damaged, or of another version of ASV.
    """
    index = folder_of(results) / "benchmarks.json"
    if not index.exists():
        return {}
    found = {}
    for name, content in result_files.versioned(index).items():
        if name != "version":
            about = result_files.converted(content, result_files.About, f"{index}: {name}")
            found[text_of(name)] = Benchmark(text_of(about.unit), about.version)
    return found


def _results(path: Path, machine: str) -> Results:
    content = result_files.converted(result_files.versioned(path), result_files.File, str(path))
    if text_of(content.params.machine) != machine:
        result_files.refuse(
            f"{path}: results of machine {content.params.machine!r} in the folder of {machine!r}"
        )
    return Results(
        path,
        machine,
        _environment(content),
        text_of(content.commit_hash),
        content.date,
        tuple(_measurements(path, content)),
    )


def _environment(content: result_files.File) -> str:
    """Return a name that differs where the environments do; ASV's own may leave something out."""
    parts = [content.env_name]
    if content.python not in content.env_name:
        parts.append(f"Python {content.python}")
    for table in (content.requirements, content.env_vars):
        parts += [f"{key} {value}" for key, value in table.items() if key not in content.env_name]
    return text_of(", ".join(parts))


def _measurements(path: Path, content: result_files.File) -> Iterator[Measurement]:
    for name, packed in sorted(content.results.items()):
        where = f"{path}: results of {text_of(name)}"
        columns = dict(zip(content.result_columns, packed, strict=False))
        row = result_files.converted(columns, result_files.Row, where)
        if math.prod(map(len, row.params)) > _MAX_COMBINATIONS:
            result_files.refuse(f"{where}: more combinations of parameters than any benchmark has")
        choices = list(product(*row.params))
        values = _column(row.result, len(choices), where)
        lows = _column(row.stats_ci_99_a, len(choices), where)
        highs = _column(row.stats_ci_99_b, len(choices), where)
        for choice, value, low, high in zip(choices, values, lows, highs, strict=True):
            number = _finite(value)
            yield Measurement(
                text_of(name),
                tuple(text_of(_plain(text)) for text in choice),
                number,
                _standard_error(low, high),
                row.version,
                row.started_at or 0,
                # ASV writes null of what failed, and NaN of what its setup skipped.
                "failed" if value is None else "n/a" if number is None else "",
            )


def _column(
    column: Sequence[float | bool | None] | None, length: int, where: str
) -> Sequence[float | bool | None]:
    """Return a column's values; ASV writes null for a column of nulls."""
    if column is None:
        return [None] * length
    if len(column) != length:
        result_files.refuse(
            f"{where}: {len(column)} values, its parameters have {length} combinations"
        )
    return column


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _standard_error(low: float | None, high: float | None) -> float | None:
    if low is None or high is None:
        return None
    error = (high - low) / 2 / _HALF_99
    return error if math.isfinite(error) and error >= 0 else None


def _plain(text: str) -> str:
    """Return a parameter without the quotes of its repr."""
    if len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
        return text
    if "\\" not in text:
        return text[1:-1]
    try:
        with warnings.catch_warnings(action="ignore"):
            return str(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
