"""Comparisons: with made-up workers for the logic, with real engines for the facts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyperf
import pytest
from made_answers import answer, side, times

from llgbench import crossing, paths
from llgbench.compare import comparison, inference, metrics, pyperf_files, sides, words, workers
from llgbench.compare import run as compare
from llgbench.compare.comparison import Comparison, Plan, Row
from llgbench.compare.facts import Difference
from llgbench.compare.messages import Answer, CaseAnswer, Job, SideTimes
from llgbench.compare.side import SIDES, Pair, Side
from llgbench.compare.table import Measured, table
from llgbench.compare.worker import run
from llgbench.compare.workers import WorkerLostError
from llgbench.errors import CompareError, InputError, UnavailableError

BASE = Side("old", Path("old.so"), None, "1.0", "0" * 64)
HEAD = Side("new", Path("new.so"), None, "1.1", "1" * 64)
PLAN = Plan(("v",), ("a", "b"), budget_s=100)


class Clock:
    """Ten seconds a reading after the first."""

    def __init__(self) -> None:
        self.now = -10.0

    def __call__(self) -> float:
        self.now += 3.0
        return self.now


def made_up(ratio: float, noise: float = 0.003) -> Callable[[Job], Answer]:
    random = np.random.default_rng(3)
    return lambda job: answer(side(100_000), side(100_000 * ratio * random.lognormal(0, noise)))


def test_slower_ends_early_and_fails() -> None:
    found = compare.compare(BASE, HEAD, PLAN, clock=Clock(), work=made_up(1.1)).comparison
    assert found.verdict == "slower"
    assert found.failed
    assert found.ended == "the answer was clear"
    assert found.processes == compare.FIRST_LOOK


def test_no_difference_passes() -> None:
    found = compare.compare(BASE, HEAD, PLAN, clock=Clock(), work=made_up(1.0)).comparison
    assert found.verdict == "same"
    assert not found.failed


def test_much_noise_is_unclear_when_the_budget_ends() -> None:
    found = compare.compare(BASE, HEAD, PLAN, clock=Clock(), work=made_up(1.0, 0.3)).comparison
    assert found.verdict == "unclear"
    assert found.ended == "the budget ended"
    assert not found.failed


def test_a_killed_worker_is_counted_and_the_others_stay() -> None:
    good = made_up(1.1)

    def work(job: Job) -> Answer:
        if job.number == 2:
            raise WorkerLostError("killed by SIGKILL")
        return good(job)

    found = compare.compare(BASE, HEAD, PLAN, clock=Clock(), work=work).comparison
    assert found.lost == ("process 3: killed by SIGKILL",)
    assert found.verdict == "slower"


def test_workers_that_never_live_end_in_one_line() -> None:
    def work(job: Job) -> Answer:
        raise WorkerLostError("killed by SIGKILL")

    with pytest.raises(CompareError, match="the workers do not live"):
        compare.compare(BASE, HEAD, PLAN, clock=Clock(), work=work)


def test_too_small_a_budget_is_said() -> None:
    with pytest.raises(CompareError, match="raise --budget"):
        compare.compare(
            BASE, HEAD, Plan(("v",), ("a",), budget_s=5), clock=Clock(), work=made_up(1.0)
        )


def test_a_budget_that_cannot_be_enough_is_not_used_up() -> None:
    """Under load processes take longer than planned: the refusal comes at once."""
    clock = Clock()

    def slow(job: Job) -> Answer:
        clock.now += 20
        return made_up(1.0)(job)

    with pytest.raises(CompareError, match="one takes 23 s or more here"):
        compare.compare(BASE, HEAD, Plan(("v",), ("a",), budget_s=90), clock=clock, work=slow)
    assert clock.now < 65


def test_differing_masks_are_not_timed() -> None:
    difference = Difference(
        case="a", text="t", step=3, so_far="{", next='"', allowed=Pair(2, 1),
        only=Pair(((7, "x"),), ()), n_only=Pair(1, 0), end=Pair("whole", "whole"), vocab="v",
    )  # fmt: skip
    found = compare.compare(
        BASE, HEAD, PLAN, clock=Clock(),
        work=lambda job: Answer(vocab="v", cases={}, differences=(difference,)),
    ).comparison  # fmt: skip
    assert found.failed
    assert found.rows == ()
    assert "first in a, step 3" in words.headline(found)
    assert "7 'x'" in "\n".join(words.difference_lines(found.differences[0]))


def test_vocabularies_are_not_pooled_with_each_other() -> None:
    cost = {"v": 1e5, "w": 9e5}

    def work(job: Job) -> Answer:
        base, head = (side(cost[job.vocab] * scale, rounds=20) for scale in (1, 1.5))
        return answer(base, head, job.cases, job.vocab)

    plan = replace(PLAN, vocabs=("v", "w"), budget_s=1000)
    found = compare.compare(BASE, HEAD, plan, clock=Clock(), work=work).comparison
    rows = {row.vocab: row for row in found.pooled if row.metric == "mask p50"}
    assert {vocab: row.base for vocab, row in rows.items()} == cost
    assert all(row.estimate.ratio == pytest.approx(1.5) for row in rows.values())


def test_where_some_masks_differ_the_others_are_compared_if_asked() -> None:
    difference = Difference(
        "a", "t", 0, "", "", Pair(1, 2), Pair((), ((7, "x"),)), Pair(0, 1), Pair("whole", "whole")
    )

    def work(job: Job) -> Answer:
        return replace(answer(side(1e5), side(1e5), ("b",)), differences=(difference,))

    strict = compare.compare(BASE, HEAD, PLAN, clock=Clock(), work=work).comparison
    assert (strict.rows, strict.processes, strict.verdict) == ((), 0, "different masks")
    asked = replace(PLAN, unequal=True)
    found = compare.compare(BASE, HEAD, asked, clock=Clock(), work=work).comparison
    assert {row.case for row in found.rows} == {"b"}
    assert found.differences == (difference,)  # once, not once per process
    assert found.failed
    assert "the masks of 1 other cases differ" in words.headline(found)


def test_all_cases_is_the_geometric_mean_of_the_cases() -> None:
    pairs: Measured = {
        ("a", "v", "TBM p50"): [(1.0, 1.21)] * 5,
        ("b", "v", "TBM p50"): [(5.0, 5.0)] * 5,
    }
    rows = table(pairs, PLAN, 0.05, np.random.default_rng(1))
    assert rows[0].case == comparison.ALL
    assert rows[0].estimate.ratio == pytest.approx(1.1)


def test_a_percentile_that_a_process_cannot_carry_has_no_row() -> None:
    found = metrics.side_metrics(CaseAnswer(("t",), 50), side(1000))
    assert "TBM p50" in found
    assert "TBM p99" not in found  # 200 steps: two lie above


def test_the_costliest_step_is_found_under_a_load_that_hits_single_replays() -> None:
    random = np.random.default_rng(3)
    cost = random.lognormal(10, 0.6, 400)  # ns; the costliest steps are the same in each round

    def rounds(of: npt.NDArray[np.float64], count: int = 12) -> SideTimes:
        replays = [of * random.lognormal(0, 0.01, len(of)) for _ in range(count)]
        for replay in replays:
            # The scheduler takes a core away, anywhere, for longer than any step.
            replay[random.integers(len(of))] += 5e6
        return times([replay.astype(np.uint64) for replay in replays], compile_ns=1e6)

    slow = np.where(cost > np.quantile(cost, 0.97), 2 * cost, cost)
    case = CaseAnswer(("t",), 400)
    base, head = (metrics.side_metrics(case, rounds(of)) for of in (cost, slow))
    assert head["TBM max"] / base["TBM max"] == pytest.approx(2, rel=0.05)
    assert head[comparison.RAW_MAX] / base[comparison.RAW_MAX] == pytest.approx(1, rel=0.1)
    assert base["TBM max"] == pytest.approx(cost.max() + 100, rel=0.02)


def test_the_raw_maximum_does_not_keep_a_comparison_from_being_the_same() -> None:
    estimate = inference.Estimate(1.0, 0.99, 1.01, 0.5, 0.01, 8)
    rows = (
        Row("a", "v", "TBM p50", "ns", 1.0, 1.0, estimate, "same"),
        Row("a", "v", comparison.RAW_MAX, "ns", 1.0, 1.0, estimate, "unclear"),
    )
    found = Comparison(BASE, HEAD, PLAN, rows=rows)
    assert found.verdict == "same"
    assert found.clear
    worse = replace(rows[1], verdict="slower")
    assert Comparison(BASE, HEAD, PLAN, rows=(rows[0], worse)).verdict == "slower"


def test_a_tokenizer_that_takes_longer_to_build_is_a_row() -> None:
    found: Measured = {}
    for n in range(8):
        built = Pair(int(7e8) + n, int(14e8) + 2 * n)
        metrics.add(found, answer(side(1e5), side(1e5), tokenizer_ns=built))
    rows = table(found, PLAN, 0.05, np.random.default_rng(1))
    (row,) = (row for row in rows if row.case == comparison.TOKENIZER)
    assert row.estimate.ratio == pytest.approx(2)
    assert row.verdict == "slower"
    assert Comparison(BASE, HEAD, PLAN, rows=rows).verdict == "slower"


def test_pyperf_reads_what_is_written(tmp_path: Path) -> None:
    found = compare.compare(BASE, HEAD, PLAN, clock=Clock(), work=made_up(1.1))
    base, head = pyperf_files.write(tmp_path, found.measured, found.answers)
    old, new = (pyperf.BenchmarkSuite.load(str(p)) for p in (base, head))
    assert old.get_benchmark_names() == new.get_benchmark_names()
    name = "a v TBM p50"
    assert old.get_benchmark(name).mean() == pytest.approx(100.1e-6)
    assert new.get_benchmark(name).mean() == pytest.approx(110e-6, rel=0.02)


# ---- real engines ----


@pytest.fixture(scope="module")
def wheel() -> Side:
    return sides.resolve("wheel", lambda _: None)


def test_an_engine_and_its_copy_have_equal_masks_and_times(wheel: Side, tmp_path: Path) -> None:
    base, head = (sides.private(wheel, tmp_path, name) for name in SIDES)
    assert base.library != head.library != wheel.library
    job = Job(
        base=base, head=head, vocab="llama-spm", cases=("json-nested",), variant="greedy_tokenize",
        number=1,
    )  # fmt: skip
    assert crossing.decode(crossing.encode(job), Job) == job
    done = run(job)
    assert crossing.decode(crossing.encode(done), Answer) == done
    assert done.differences == ()
    nested = done.cases["json-nested"]
    assert nested.rounds == 2
    assert nested.times is not None
    assert metrics.side_metrics(nested, nested.times.base)["TBM p50"] > 0


def test_work_counters_are_equal_for_equal_engines(tmp_path: Path) -> None:
    try:
        stock = sides.resolve("stock", lambda _: None)
    except UnavailableError as error:
        pytest.skip(str(error))
    job = Job(
        base=stock, head=stock, vocab="llama-spm", cases=("listed",), variant="greedy_tokenize",
        mode="verify",
    )  # fmt: skip
    found = {c.counter: c for c in run(job).counters}
    assert found["trie_nodes_walked"].base > 0
    assert all(c.base == c.head for c in found.values())


def test_a_worker_speaks_one_line_where_it_refuses(wheel: Side, tmp_path: Path) -> None:
    job = Job(
        base=wheel, head=wheel, vocab="llama-spm", cases=("no-such-case",),
        variant="greedy_tokenize",
    )  # fmt: skip
    with pytest.raises(CompareError, match="unknown case 'no-such-case'"):
        workers.spawn(job)


def test_the_fallback_cannot_be_switched_on_where_there_is_none() -> None:
    with pytest.raises(UnavailableError, match="no greedy lexeme fallback"):
        sides.resolve("wheel+fallback=on", lambda _: None)
    assert sides.resolve("wheel+fallback=off", lambda _: None).options == {}
    with pytest.raises(InputError, match="on or off"):
        sides.resolve("wheel+fallback=maybe", lambda _: None)


# ---- as a user runs it ----

# So wide a threshold that the answer is clear at the first look, and enough time for that look
# where other things run too.
CHEAP = (
    "--vocab", "llama-spm", "--case", "listed", "--threshold", "0.3", "--budget", "90",
)  # fmt: skip


def run_cli(*arguments: str, output: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "llgbench.commands.cli", "compare", *arguments, *CHEAP]
    return subprocess.Popen(
        [*command, "--output", str(output)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.usefixtures("_vocabs_here")
def test_comparisons_in_one_second_have_a_folder_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("engine", "grammars", "vocabs"):
        (tmp_path / name).symlink_to(paths.root() / name)
    monkeypatch.setenv(paths.ROOT_VARIABLE, str(tmp_path))
    # Equal engines are not measured: this ends in a second.
    command = [sys.executable, "-m", "llgbench.commands.cli", "compare", "wheel", "wheel",
               "--vocab", "llama-spm", "--case", "listed"]  # fmt: skip
    started = 0
    while not any(path.name.endswith("-2") for path in tmp_path.glob("comparisons/*")):
        assert started < 20, "there were no two in one second"
        running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        for process in running:
            _, said = process.communicate(timeout=120)
            assert process.returncode == 0, said
        started += len(running)
    folders = list((tmp_path / "comparisons").iterdir())
    assert len(folders) == started
    for folder in folders:
        assert [path.name for path in folder.iterdir()] == ["comparison.json"]


@pytest.mark.usefixtures("_vocabs_here")
def test_an_engine_against_itself_says_what_the_machine_sees(tmp_path: Path) -> None:
    process = run_cli("--self", "wheel", "--json", output=tmp_path)
    shown, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    found = json.loads(shown)
    assert found["self"]
    assert found["verdict"] in ("same", "unclear")
    assert found["processes"] >= inference.MIN_PROCESSES
    assert found["lost"] == found["differences"] == []
    assert found["base"]["sha256"] == found["head"]["sha256"]
    assert found["head"]["spec"] == "wheel (copy)"
    row = next(r for r in found["rows"] if (r["case"], r["metric"]) == ("listed", "TBM p50"))
    # The same code beside itself: no more apart than a busy machine's processes.
    assert 0.8 < row["estimate"]["ratio"] < 1.25
    assert {p.name for p in tmp_path.iterdir()} == {"comparison.json", "base.json", "head.json"}


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Return the process ids of a running comparison's workers."""
    with suppress(OSError):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return [
            int(child) for child in children
            if b"llgbench.compare.worker" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]  # fmt: skip
    return []


@pytest.mark.usefixtures("_vocabs_here")
def test_a_real_worker_that_is_killed_leaves_the_others(tmp_path: Path) -> None:
    process = run_cli("wheel", "--self", output=tmp_path)
    first = victim = None
    deadline = time.monotonic() + 60
    while victim is None and process.poll() is None and time.monotonic() < deadline:
        for worker in workers_of(process):
            first = first or worker
            if worker != first:
                victim = worker
        time.sleep(0.01)
    assert victim is not None, "no second worker was seen"
    os.kill(victim, signal.SIGKILL)
    shown, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    found = json.loads((tmp_path / "comparison.json").read_text())
    assert found["lost"] == ["process 2: killed by SIGKILL"]
    n = found["processes"]
    assert n >= inference.MIN_PROCESSES
    assert f"lost process 2: killed by SIGKILL; {n} others are in the table" in said
    rows = [line.split() for line in shown.splitlines()]
    # In a pipe a table fits 100 columns: its last ones, among them the processes, stand below.
    assert any(row[:3] == ["listed", "TBM", "p50"] and str(n) in row[3:] for row in rows)
    assert f"{n} processes)" in shown


def test_thresholds_differ_by_what_is_measured() -> None:
    names = ("listed",)
    assert compare.plan_of(names, ("llama-spm",)).threshold == 0.02
    assert compare.plan_of(names, ("llama-spm",), count=True).threshold == 0.005
    assert inference.MIN_PROCESSES >= 5
