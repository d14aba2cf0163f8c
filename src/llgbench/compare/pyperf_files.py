"""A comparison as two pyperf files, which ``pyperf compare_to`` and ``pyperf check`` read."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llgbench import files
from llgbench.compare.comparison import Measured
from llgbench.compare.sides import SIDES
from llgbench.errors import RecordError


def write(
    folder: Path, found: Measured, processes: Sequence[Mapping[str, Any]], unit: str = "second"
) -> list[Path]:
    """Write base.json and head.json: one benchmark a row, one run with one value a process.

    Args:
        folder: where; made if need be.
        found: nanoseconds (or counts) by case, vocab and metric.
        processes: their ``metadata`` goes with their values.
        unit: pyperf's: ``second``, or ``integer`` for counts.

    Raises:
        RecordError: the folder cannot be written.
    """
    import pyperf

    written = []
    for at, side in enumerate(SIDES):
        benchmarks = []
        for (case, vocab, metric), pairs in sorted(found.items()):
            runs = [
                pyperf.Run(
                    [pair[at] / 1e9 if unit == "second" else int(pair[at])],
                    metadata={
                        **_kept(process), "name": f"{case} {vocab} {metric}", "unit": unit,
                        "loops": 1,
                    },
                    collect_metadata=False,
                )
                for pair, process in zip(
                    pairs, [p for p in processes if p["vocab"] == vocab], strict=False
                )
            ]  # fmt: skip
            if len(runs) > 1:
                benchmarks.append(pyperf.Benchmark(runs))
        text = io.StringIO()
        pyperf.BenchmarkSuite(benchmarks).dump(text)
        path = folder / f"{side}.json"
        files.write(path, text.getvalue(), error=RecordError)
        written.append(path)
    return written


def _kept(process: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without what pyperf sets itself and what differs in every process."""
    found = process.get("metadata", {})
    return {k: v for k, v in found.items() if k not in ("name", "unit", "loops", "command_max_rss")}
