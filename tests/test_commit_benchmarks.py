"""Commits beside a fixed engine: made-up processes for the arithmetic, real engines for facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import Lab
from made_answers import answer, times

from llgbench.asv import commit_benchmarks
from llgbench.asv.cells import Values
from llgbench.asv.commit_benchmarks import METRICS, MIN_PROCESSES, PROCESSES, parameter
from llgbench.compare.facts import Difference
from llgbench.compare.messages import Answer, Job, SideTimes
from llgbench.compare.side import Pair
from llgbench.compare.workers import WorkerLostError
from llgbench.engines import wheels
from llgbench.engines.engine import Engine
from llgbench.errors import CompareError, InputError, LlgbenchError

STEPS, REPLAYS = 100, 20


def made_up(job: Job) -> Answer:
    """A machine whose load doubles with every process; the commit takes 1.5 times as long."""

    def side(ns: float) -> SideTimes:
        masks = [np.full(STEPS, ns, np.uint64)] * REPLAYS
        return times(masks, compile_ns=ns * 10, consume_ns=ns / 10)

    load = 1000 * 2**job.number
    return answer(side(load), side(load * 1.5), job.cases, job.vocab)


def measure(engine: Engine, work: Callable[[Job], Answer], *cases: str) -> Values:
    return commit_benchmarks.measure(
        cases or ("a",), ("v",), engine.sha256, library=engine.path, work=work
    )


def metrics_of(found: Values, case: str = "a", vocab: str = "v") -> dict[str, Any]:
    metrics = found[parameter(case, vocab)]
    assert isinstance(metrics, dict), metrics
    return metrics


def test_the_ratio_is_the_commits_over_the_references(wheel: Engine) -> None:
    metrics = metrics_of(measure(wheel, made_up))
    for name in METRICS:
        assert metrics[f"{name} ratio"]["samples"] == pytest.approx([1.5] * PROCESSES)
    times = metrics["consume"]["samples"]
    assert times == pytest.approx([150.0 * 2**number for number in range(PROCESSES)])
    assert metrics["same_masks"] == 1.0


def test_who_goes_first_alternates(wheel: Engine) -> None:
    jobs: list[Job] = []
    measure(wheel, lambda job: jobs.append(job) or made_up(job))  # type: ignore[func-returns-value]
    assert [job.number for job in jobs] == list(range(PROCESSES))
    assert {job.mode for job in jobs} == {"history"}


def test_killed_processes_are_no_samples_and_too_few_are_no_value(wheel: Engine) -> None:
    def work(job: Job) -> Answer:
        if job.number < lost:
            raise WorkerLostError("killed by SIGKILL")
        return made_up(job)

    lost = PROCESSES - MIN_PROCESSES
    assert len(metrics_of(measure(wheel, work))["TTFM ratio"]["samples"]) == MIN_PROCESSES
    lost += 1
    found = measure(wheel, work)
    with pytest.raises(NotImplementedError, match=f"{MIN_PROCESSES - 1} of {PROCESSES} processes"):
        commit_benchmarks.look_up(found, "a", "v")


def test_a_case_that_a_commit_refuses_leaves_the_others(wheel: Engine) -> None:
    def work(job: Job) -> Answer:
        done = made_up(job)
        kept = {name: of for name, of in done.cases.items() if name != "b"}
        return replace(done, cases=kept, refused={"b": "b does not compile on head: no %json"})

    found = measure(wheel, work, "a", "b")
    assert metrics_of(found, "a")
    assert found[parameter("b", "v")] == "b does not compile on head: no %json"


def test_a_process_that_refuses_says_why_in_every_case(wheel: Engine) -> None:
    def work(job: Job) -> Answer:
        raise CompareError("v is not fetched")

    assert set(measure(wheel, work, "a", "b").values()) == {"v is not fetched"}


def test_masks_unlike_the_references_are_said(wheel: Engine) -> None:
    def work(job: Job) -> Answer:
        difference = Difference(
            "b", "t", 0, "", "", Pair(1, 2), Pair((), ()), Pair(0, 0), Pair("whole", "whole")
        )
        return replace(made_up(job), differences=(difference,))

    found = measure(wheel, work, "a", "b")
    assert metrics_of(found, "a")["same_masks"] == 1.0
    assert metrics_of(found, "b")["same_masks"] == 0.0


def test_another_wheel_is_another_reference(wheel: Engine) -> None:
    with pytest.raises(InputError, match="run llgbench asv again"):
        commit_benchmarks.measure(("a",), ("v",), "0" * 64, wheel.path, made_up)


def test_a_release_is_measured_beside_the_wheel(
    wheel: Engine, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.7.6 allows tokens inside a property name of github-workflow that the wheel does not."""
    try:
        library = wheels.fetch_release("1.7.6")
    except LlgbenchError as error:
        pytest.skip(f"llguidance 1.7.6 cannot be fetched: {error}")
    monkeypatch.setattr(commit_benchmarks, "PROCESSES", 1)
    monkeypatch.setattr(commit_benchmarks, "MIN_PROCESSES", 1)
    monkeypatch.setattr(commit_benchmarks, "SECONDS", 0.0)
    cases = ("listed", "github-workflow")
    found = commit_benchmarks.measure(cases, ("llama-bpe",), wheel.sha256, library)
    metrics = metrics_of(found, "github-workflow", "llama-bpe")
    for name in METRICS:
        assert len(metrics[name]["samples"]) == len(metrics[f"{name} ratio"]["samples"]) == 1
    # 1 µs to 1 s: neither seconds nor a ratio can pass for nanoseconds.
    assert 1e3 < metrics["TBM p50"]["samples"][0] < 1e9
    assert 0.2 < metrics["TBM p50 ratio"]["samples"][0] < 5
    assert metrics_of(found, "listed", "llama-bpe")["same_masks"] == 1.0
    assert metrics_of(found, "github-workflow", "llama-bpe")["same_masks"] == 0.0
