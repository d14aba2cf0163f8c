"""A comparison as two pyperf files, which ``pyperf compare_to`` and ``pyperf check`` read."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from llgbench import files
from llgbench.compare.messages import Answer
from llgbench.compare.side import SIDES
from llgbench.compare.table import Measured
from llgbench.errors import RecordError


def write(
    folder: Path, found: Measured, answers: Sequence[Answer], unit: str = "second"
) -> list[Path]:
    """Write base.json and head.json: one benchmark a row, one run with one value a process.

    Args:
        folder: where; made if need be.
        found: nanoseconds (or counts) by case, vocab and metric.
        answers: their ``metadata`` goes with their values.
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
                        **_kept(answer), "name": f"{case} {vocab} {metric}", "unit": unit,
                        "loops": 1,
                    },
                    collect_metadata=False,
                )
                for pair, answer in zip(
                    pairs, [a for a in answers if a.vocab == vocab], strict=False
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


def _kept(answer: Answer) -> dict[str, str | int | float]:
    """Return metadata without what pyperf sets itself and what differs in every process."""
    own = ("name", "unit", "loops", "command_max_rss")
    return {k: v for k, v in answer.metadata.items() if k not in own}
