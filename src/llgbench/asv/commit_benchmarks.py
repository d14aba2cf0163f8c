"""What the benchmarks written by ``llgbench asv`` measure: each case on the environment's engine.

Every commit is measured alone, hours or months from its neighbours, on a machine that is not
equally busy. So a fixed reference engine, the installed wheel, is replayed beside the commit's
library: in the same processes, the two taking turns. The ratio of the two is free of what slows
both, and is what alerts are decided on.

Cheap to import: ASV's discovery imports the benchmarks of every commit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llgbench.asv.cells import Metrics, Value, Values
    from llgbench.compare.messages import Answer, Job

# A process draws its own addresses and hash seeds, so it gives one sample. Twelve are the fewest
# of which ASV's 99% interval of the median leaves out the lowest and the highest: about one
# process in ten is disturbed on one side alone.
PROCESSES = 12

# With fewer ASV has no interval of the median.
MIN_PROCESSES = 8

# What a process replays a case for, beside its set-up.
SECONDS = 1.0

# What is tracked; all but what a sample cannot carry.
METRICS = ("TBM p50", "TBM p99", "TTFM", "consume")

# The classes of the benchmarks, with the same methods in both.
TIMES = "Masks"
RATIOS = "Ratios"


def ratio_twin(benchmark: str) -> str | None:
    """Return the ratio that stands beside a benchmark's times; None of what is no such time."""
    module, _, method = benchmark.partition(f".{TIMES}.")
    return f"{module}.{RATIOS}.{method}" if method else None


def method(metric: str) -> str:
    """Return the name of the benchmark that tracks a metric."""
    return f"track_{metric.lower().replace(' ', '_')}"


def parameter(case: str, vocab: str) -> str:
    """Return the name of a case and vocab among the values."""
    return f"{case} | {vocab}"


def look_up(values: Values, case: str, vocab: str) -> Metrics:
    """Return the metrics of a case and vocab.

    Raises:
        NotImplementedError: there are none; ASV shows n/a, stderr says why.
    """
    from llgbench.asv.cells import row

    return row(values, parameter(case, vocab))


def measure(
    cases: Sequence[str],
    vocabs: Sequence[str],
    reference_sha256: str,
    library: Path | None = None,
    work: Callable[[Job], Answer] | None = None,
) -> Values:
    """Measure every case on every vocab, beside the reference.

    Args:
        cases: by name.
        vocabs: by name.
        reference_sha256: of the reference engine that these benchmarks are written for.
        library: the commit's; the one in this environment unless given.
        work: does one process's job; a subprocess unless given.

    Returns:
        By :func:`parameter`, metrics in the form of which ASV computes a median and its interval,
        one sample a process: ``TBM p50`` and so on in nanoseconds, ``TBM p50 ratio`` and so on as
        commit / reference, and ``same_masks``, 1 or 0. A string in place of the metrics says why
        there are none.

    Raises:
        InputError: the installed wheel is another than the reference.
        EngineError: the library cannot serve.
    """
    from llgbench import processes
    from llgbench.compare import sides
    from llgbench.compare.messages import Job
    from llgbench.compare.workers import WorkerLostError, spawn
    from llgbench.engines.git_build import LIBRARY
    from llgbench.errors import CompareError, InputError

    def say(_: str) -> None:
        """Say nothing: ASV has its own progress."""

    reference = sides.resolve("wheel", say)
    if reference.sha256 != reference_sha256:
        raise InputError(
            f"these benchmarks compare with the engine {reference_sha256[:12]}, and the wheel here "
            f"is {reference.sha256[:12]}: install that one, or run llgbench asv again"
        )
    commit = sides.resolve(str(library or Path(sys.prefix) / LIBRARY), say)
    found: Values = {}
    with processes.temporary_folder() as place:
        # As in any comparison: a file that others use as well would not be a fair reference.
        base, head = (
            sides.private(side, place, name)
            for side, name in ((reference, "base"), (commit, "head"))
        )
        for vocab in vocabs:
            done: list[Answer] = []
            job = Job(
                base=base, head=head, vocab=vocab, cases=tuple(cases), variant="greedy_tokenize",
                seconds=SECONDS * len(cases), mode="history",
            )  # fmt: skip
            try:
                for number in range(PROCESSES):
                    # The others stay where one is killed; too few are no value.
                    with suppress(WorkerLostError):
                        done.append((work or spawn)(replace(job, number=number)))
            except CompareError as error:
                found |= {parameter(case, vocab): str(error) for case in cases}
            else:
                found |= {parameter(case, vocab): _metrics(done, case) for case in cases}
    return found


def _metrics(answers: Sequence[Answer], case: str) -> dict[str, Value] | str:
    from llgbench.compare.metrics import side_metrics

    for answer in answers:
        if case in answer.refused:
            return answer.refused[case]
    if len(answers) < MIN_PROCESSES:
        return f"{len(answers)} of {PROCESSES} processes lived, at least {MIN_PROCESSES} are needed"
    found: dict[str, list[float]] = {n: [] for name in METRICS for n in (name, f"{name} ratio")}
    for answer in answers:
        times = answer.cases[case].times
        if times is None:
            continue
        reference, commit = (
            side_metrics(answer.cases[case], of_side) for of_side in (times.base, times.head)
        )
        for name in METRICS:
            if name in reference and name in commit:
                found[name].append(commit[name])
                found[f"{name} ratio"].append(commit[name] / reference[name])
    # On a busy machine a process may replay too seldom to carry a percentile.
    metrics: dict[str, Value] = {
        name: {"samples": samples, "number": 1} if len(samples) >= MIN_PROCESSES else None
        for name, samples in found.items()
    }
    differ = any(d.case == case for answer in answers for d in answer.differences)
    metrics["same_masks"] = float(not differ)
    return metrics
