"""Many schemas under several engines: what becomes of each, and what is refused.

A verdict alone: verdicts run in parallel, times would disturb each other. What is done is kept line
by line, so that a sweep that was killed goes on where it stopped.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from llgbench import files
from llgbench.errors import InputError, RecordError, UnavailableError
from llgbench.inputs.case import Case
from llgbench.isolated import Limits
from llgbench.llama.trial import rehearse
from llgbench.peers import cluster, sweep_workers
from llgbench.peers.grammars import WhiteSpace
from llgbench.peers.host import Setup
from llgbench.peers.results import OUTCOMES, CaseResult
from llgbench.peers.run import Progress, check_engine
from llgbench.peers.sweep_workers import Task

# A schema for which an engine takes longer is not one that a server would take.
SECONDS = 60.0
_VERSION = 2


@dataclass(frozen=True)
class Plan:
    """What is swept.

    Attributes:
        engines: their specifications.
        cases: the schemas with their instances.
        vocab: the vocabulary's name.
        white_space: of the configuration.
        base: llguidance's engine, by which masks are judged.
        limits: of each schema under each engine.
        jobs: how many at once.
        scheduler: address of a Dask scheduler, which knows better how many; None: this machine.
    """

    engines: tuple[str, ...]
    cases: tuple[Case, ...]
    vocab: str
    white_space: WhiteSpace
    base: str
    limits: Limits
    jobs: int
    scheduler: str | None = None


class _Header(msgspec.Struct, frozen=True):
    """The first line of a sweep's file: with another, the file is of another sweep."""

    sweep: int
    vocab: str
    white_space: str
    base: str
    seconds: float
    memory_mib: int


class _Line(msgspec.Struct, frozen=True):
    digest: str
    result: CaseResult


_Key = tuple[str, str]


class Kept:
    """The results of a sweep so far, in a file of lines.

    Attributes:
        results: by case and engine.
    """

    def __init__(self, path: Path, plan: Plan) -> None:
        """Open the file, and read what is in it of these schemas.

        Raises:
            RecordError: it is of another sweep, or not of any, or cannot be written.
        """
        self._path = path
        self._lock = threading.Lock()
        self.results: dict[_Key, CaseResult] = {}
        header = _Header(
            _VERSION, plan.vocab, plan.white_space, plan.base, plan.limits.seconds,
            plan.limits.memory_mib,
        )  # fmt: skip
        if path.exists():
            self._read(header, {case.name: case.digest for case in plan.cases})
        else:
            files.write(path, msgspec.json.encode(header) + b"\n", error=RecordError)

    def _read(self, header: _Header, digests: dict[str, str]) -> None:
        lines = files.read(self._path, error=RecordError).split(b"\n")
        found = files.from_json(lines[0], _Header, f"{self._path}: line 1", error=RecordError)
        if found != header:
            raise RecordError(f"{self._path} is of another sweep; name another --output")
        whole = lines[1:-1]  # of a sweep that was killed the last line may be cut short
        for number, line in enumerate(whole, 2):
            where = f"{self._path}: line {number}"
            kept = files.from_json(line, _Line, where, error=RecordError)
            if digests.get(kept.result.case) == kept.digest:
                self.results[kept.result.case, kept.result.engine] = kept.result
        if lines[-1]:
            files.write(self._path, b"\n".join([lines[0], *whole]) + b"\n", error=RecordError)

    def add(self, case: Case, result: CaseResult) -> None:
        """Keep a result.

        Raises:
            RecordError: the file cannot be written.
        """
        line = msgspec.json.encode(_Line(case.digest, result)) + b"\n"
        with self._lock:
            try:
                with self._path.open("ab") as file:
                    file.write(line)
            except OSError as why:
                raise RecordError(f"cannot write {self._path}: {why.strerror}") from None
            self.results[case.name, result.engine] = result


def run(
    plan: Plan,
    path: Path,
    show: Callable[[int, str], AbstractContextManager[Progress]],
) -> list[CaseResult]:
    """Judge every schema under every engine, but for what the file has already.

    Args:
        plan: what is swept.
        path: the file of results.
        show: makes the display of the progress.

    Raises:
        UnavailableError: several jobs are asked for, and joblib is not installed; or a scheduler,
            and Dask is not.
        InputError: no scheduler answers.
        RecordError: as :class:`Kept`.
        LlgbenchError: an engine or the vocabulary is not here.
    """
    if not plan.engines:
        raise InputError("name an engine by --engine")
    for name in plan.engines:
        check_engine(name)
    rehearse(plan.vocab)
    kept = Kept(path, plan)
    # By engine: a process that has loaded one keeps it.
    tasks = [
        Task(Setup(engine, plan.vocab, plan.white_space, plan.base, plan.limits), case)
        for engine in plan.engines
        for case in plan.cases
        if (case.name, engine) not in kept.results
    ]
    begin, used = time.monotonic(), time.process_time()
    with show(len(tasks), "sweeping") as progress:
        for done, (case, result) in enumerate(_results(plan, tasks), 1):
            # What this process took since the last one is a part of what a sweep costs.
            now = time.process_time()
            kept.add(case, replace(result, cpu_s=result.cpu_s + now - used))
            used = now
            left = (time.monotonic() - begin) / done * (len(tasks) - done)
            progress.doing(f"{result.engine}: {case.name} (about {_duration(left)} left)")
            progress.done()
    return [kept.results[case.name, engine] for engine in plan.engines for case in plan.cases]


def _results(plan: Plan, tasks: Sequence[Task]) -> Iterator[tuple[Case, CaseResult]]:
    if plan.scheduler is not None:
        yield from cluster.results(plan.scheduler, tasks)
        return
    try:
        if plan.jobs == 1:
            yield from map(_done, tasks)
        else:
            yield from _parallel(tasks, plan.jobs)
    finally:
        sweep_workers.close()


def _parallel(tasks: Sequence[Task], jobs: int) -> Iterable[tuple[Case, CaseResult]]:
    try:
        from joblib import Parallel, delayed
    except ImportError:
        raise UnavailableError(
            "more than one job requires joblib; run: pip install joblib, or leave --jobs out"
        ) from None
    # Threads, since each only waits for a process of its own.
    pool = Parallel(n_jobs=jobs, backend="threading", return_as="generator_unordered", batch_size=1)
    found: Iterable[tuple[Case, CaseResult]] = pool(delayed(_done)(task) for task in tasks)
    return found


def _done(task: Task) -> tuple[Case, CaseResult]:
    return task.case, sweep_workers.do(task)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min" if minutes >= 3 else f"{60 * minutes + rest} s"


def rows(results: Sequence[CaseResult]) -> list[dict[str, Any]]:
    """Return a row per engine: how many schemas ended in which way, and how the masks are."""
    found = []
    for engine in dict.fromkeys(r.engine for r in results):
        own = [r for r in results if r.engine == engine]
        outcomes = Counter(r.outcome for r in own)
        judged = [r for r in own if r.masks.steps]
        ended = [r for r in own if r.inside_s]
        inside, whole = sum(r.inside_s for r in ended), sum(r.cpu_s for r in ended)
        row: dict[str, Any] = {"engine": engine, "schemas": len(own)}
        row |= {outcome: outcomes[outcome] for outcome in OUTCOMES if _shown(outcome, results)}
        found.append({
            **row,
            "masks equal": sum(r.masks.equal == r.masks.steps for r in judged),
            "by a class": sum(
                r.masks.differing == 0 and r.masks.equal < r.masks.steps for r in judged
            ),
            "differ": sum(r.masks.differing > 0 for r in judged),
            "own cost": f"{whole / inside - 1:.0%}" if inside else None,
        })  # fmt: skip
    return found


def _shown(outcome: str, results: Sequence[CaseResult]) -> bool:
    return outcome == "right" or any(r.outcome == outcome for r in results)


def refusals(results: Sequence[CaseResult], most: int = 8) -> list[dict[str, Any]]:
    """Return why engines do not compile schemas, the most frequent reasons first."""
    found: list[dict[str, Any]] = []
    for engine in dict.fromkeys(r.engine for r in results):
        reasons = Counter(
            _gist(r.reason) for r in results
            if r.engine == engine and r.outcome == "does not compile"
        )  # fmt: skip
        found += [
            {"engine": engine, "schemas": n, "reason": reason}
            for reason, n in reasons.most_common(most)
        ]
    return found


def _gist(reason: str) -> str:
    """Return a reason without what differs from schema to schema: numbers, places and names."""
    short = re.sub(r"^\[[\d:]+\] \S+: ", "", reason)
    short = re.sub(r"\"[^\"]*\"|'[^']*'", "…", short)
    return files.one_line(re.sub(r"\d+", "N", short), 100)
