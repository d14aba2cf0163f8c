"""Comparisons in instructions: what a count says, and how long it may take."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from llgbench.compare import comparison, counting, sides, words
from llgbench.compare import run as comparing
from llgbench.compare.comparison import Comparison, Plan
from llgbench.compare.facts import FunctionChange
from llgbench.compare.messages import Answer, CaseAnswer, Job
from llgbench.compare.side import SIDES, Side
from llgbench.compare.table import Measured, table
from llgbench.compare.worker import run
from llgbench.engines import registry
from llgbench.errors import UnavailableError
from llgbench.fallback import counted_jobs
from llgbench.measure import callgrind
from llgbench.measure.callgrind import Dump
from llgbench.measure.counter import Recorded
from llgbench.report import pull_request

counts = pytest.mark.skipif(
    callgrind.missing() is not None, reason=callgrind.missing() or "counting works here"
)


@counts
@pytest.mark.usefixtures("_vocabs_here")
def test_instructions_of_an_engine_and_its_copy(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "llgbench.commands.cli",
        "compare",
        "--self",
        "wheel",
        "--count",
    ]
    command += ["--case", "listed", "--vocab", "llama-spm", "--budget", "5", "--json"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert counting.MIN_SEEDS <= found["counted"] <= counting.SEEDS
    assert found["verdict"] in ("same", "unclear")
    assert f"{found['counted']} processes)" in found["line"]
    assert {row["unit"] for row in found["rows"]} == {"instructions"}
    assert {row["metric"] for row in found["rows"]} == set(comparison.COUNT_METRICS)
    for row in found["rows"]:
        assert row["base"] > 1000
        assert row["estimate"]["ratio"] == pytest.approx(1, abs=0.003), row["metric"]


@counts
def test_no_process_is_begun_that_the_budget_has_no_room_for(tmp_path: Path) -> None:
    (tmp_path / "job").write_bytes(np.array([1, 0], np.uint32).tobytes())
    (tmp_path / "recording").write_bytes(np.array([1, 0, 0], np.uint32).tobytes())
    nothing = Recorded((), tmp_path / "job", tmp_path / "recording", (), ())
    said: list[str] = []
    done, functions = counting._processes([nothing], 0.0, said.append)
    assert len(done) == counting.MIN_SEEDS
    assert counting.changed(functions) == []
    assert said[-1].startswith(f"{counting.MIN_SEEDS} of {counting.SEEDS} processes")
    done, _ = counting._processes([nothing], float("inf"), said.append)
    assert len(done) == counting.SEEDS


class Loaded:
    """A machine on which a worker takes so many seconds, and a count so many more each time."""

    def __init__(self, worker_s: float, counted_s: Sequence[float]) -> None:
        self.now, self.worker_s, self.left = 0.0, worker_s, list(counted_s)
        self.lock = threading.Lock()
        self.begun: list[float] = []
        self.timed = 0
        # The share of each side's instructions that is in functions with a name.
        self.named: dict[str, float] = {"base": 1.0, "head": 1.0}

    def clock(self) -> float:
        return self.now

    def work(self, job: Job) -> Answer:
        self.now += self.worker_s
        nothing = Recorded((), Path("job"), Path("recording"), (), ())
        if job.mode == "count":
            case = CaseAnswer(("t",), 3, counted="t")
            return Answer(vocab=job.vocab, cases={"a": case}, recorded=(nothing,))
        self.timed += 1
        raise AssertionError("there is no room for the clock")

    def run(self, recorded: Recorded, seed: int, *, functions: bool) -> list[Dump]:
        with self.lock:
            self.begun.append(self.now)
            self.now += self.left.pop(0)
        dumps = []
        for side in SIDES:
            for what, amounts in (("compile", [9]), ("mask", [10, 20, 30]), ("consume", [1, 1, 1])):
                for n in amounts:
                    of = {f"{what}_of": int(n * self.named[side])} if functions else {}
                    dumps.append(Dump(f"0 {side} {what}", n + seed, of))
        return dumps

    def count(self, monkeypatch: pytest.MonkeyPatch, budget_s: float) -> Comparison:
        monkeypatch.setattr(callgrind, "require", lambda: None)
        monkeypatch.setattr(sides, "countable", lambda side: side)
        # One after the other: what one clock says of two at once means nothing.
        monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
        side = Side("old", Path("old.so"), None, "1.0", "0" * 64)
        plan = Plan(("v",), ("a",), threshold=0.005, budget_s=budget_s)
        tools = counting.Tools(self.clock, self.work, self.run)
        return comparing._by_count(side, side, plan, lambda _: None, tools).comparison


def test_under_load_the_budget_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is begun that would end behind the budget, and how many fitted is said."""
    machine = Loaded(8, [10, 12, 9, 20, 20])
    found = machine.count(monkeypatch, 60)
    assert (found.counted, machine.begun) == (4, [8, 18, 30, 39])
    assert found.wall_s == machine.now == 59
    assert "4 of 5 processes counted, as many as the budget has room for" in found.ended
    assert machine.timed == 0  # a second is left
    assert "4 processes)" in words.headline(found)


def test_a_count_has_two_processes_at_least_and_says_what_that_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Loaded(30, [70, 70, 70, 70, 70]).count(monkeypatch, 60)
    assert (found.counted, found.wall_s) == (counting.MIN_SEEDS, 170)
    assert found.ended == (
        "2 of 5 processes counted, the fewest there can be, in 170 s of a budget of 60 s"
    )


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_functions_are_listed_only_where_both_sides_have_names(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Beside a published library, which has the names of its interface alone, all seem new."""
    machine = Loaded(8, [20] * 5)
    machine.named = {"base": share, "head": 1.0}
    found = machine.count(monkeypatch, 60)
    assert (found.functions, found.named) == ((), False)
    assert "no names of functions" in str(words.no_functions(found))
    machine = Loaded(8, [20] * 5)
    machine.named = {"base": 0.8, "head": 1.0}
    assert [f.function for f in machine.count(monkeypatch, 60).functions]


def test_the_clock_is_begun_only_where_its_fewest_processes_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Loaded(8, [2] * 5)
    found = machine.count(monkeypatch, 60)  # 42 s are left, and five processes take 45
    assert (found.counted, found.wall_s, machine.timed) == (5, 18, 0)
    assert found.ended == "5 processes counted"
    with pytest.raises(AssertionError, match="no room"):
        Loaded(8, [2] * 5).count(monkeypatch, 64)


def test_metrics_are_of_the_steps_that_were_counted() -> None:
    found = counting.count_metrics(
        {"compile": [1000, 2000], "mask": [10, 20, 30, 40, 50, 60], "consume": [1, 2, 3, 4]}
    )
    assert found["TBM mean"] == pytest.approx(np.mean([11, 22, 43, 54]))
    assert found["TBM max"] == np.median([22, 54])
    assert found["TTFM"] == np.mean([1010, 2040])
    assert found["consume"] == 2.5


def test_the_functions_that_changed_most() -> None:
    base = Counter({"compute": 100_000, "walk": 50_000, "same": 9, "gone": 5_000})
    head = Counter({"compute": 100_020, "walk": 80_000, "same": 9, "new": 7_000})
    found = counting.changed({"base": base, "head": head})
    assert [(f.function, f.base, f.head) for f in found] == [
        ("walk", 50_000, 80_000), ("new", 0, 7_000), ("gone", 5_000, 0),
    ]  # fmt: skip


@counts
def test_functions_are_counted_by_themselves(tmp_path: Path) -> None:
    """Of an engine that has names, the parts are the whole."""
    try:
        stock = registry.get("stock")
    except UnavailableError as error:
        pytest.skip(str(error))
    job = counted_jobs.json_job({"off": stock}, "", "llama-spm", ("listed",), tmp_path)
    plain, by_function = (callgrind.run(job, 0, functions=wanted) for wanted in (False, True))
    assert [d.instructions for d in plain] == [d.instructions for d in by_function]
    assert not any(dump.functions for dump in plain)
    for dump in by_function:
        assert 0.9 * dump.instructions < sum(dump.functions.values()) <= dump.instructions
        assert any("llguidance" in name for name in dump.functions)
        assert not any(callgrind._HASH.search(name) for name in dump.functions)


def test_the_section_shows_the_instructions_that_decided() -> None:
    side = Side("old", Path("old.so"), None, "1.0", "0" * 64)
    plan = Plan(("v",), ("a",), threshold=0.005)
    pairs: Measured = {
        ("a", "v", metric): [(1e6, 1.02e6), (1e6, 1.0201e6), (1e6, 1.0199e6)]
        for metric in comparison.COUNT_METRICS
    }
    rows = table(pairs, plan, 0.05, np.random.default_rng(1), "instructions")
    functions = (FunctionChange("a::b<T>", 1000, 2000, "v"),)
    text = pull_request.section(
        Comparison(side, side, plan, rows=rows, counted=3, functions=functions)
    )
    assert text.startswith("### llgbench: slower\n")
    assert "| instructions | old | new |" in text
    assert "| TBM mean | 1,000,000 | 1,020,000 | +2.0% |" in text
    assert "| `a::b<T>` | 1,000 | 2,000 | +1,000 |" in text
    assert "3 processes)" in text
    assert " 0 processes" not in text.replace("0 processes timed", "")


@counts
@pytest.mark.usefixtures("_vocabs_here")
def test_how_often_tokens_are_asked_for_is_a_work_counter(tmp_path: Path) -> None:
    """What llama.cpp does for an engine is not in the instructions; a change is shown beside."""
    wheel = sides.resolve("wheel", lambda _: None)
    base, head = (sides.private(wheel, tmp_path, name) for name in SIDES)
    ask = Job(
        base=base, head=head, vocab="llama-bpe", cases=("json-tool-call",),
        variant="greedy_tokenize", mode="count", folder=str(tmp_path),
    )  # fmt: skip
    done = run(ask)
    first, second = done.recorded
    assert sum(first.asked) == sum(second.asked) > 0
    assert max(first.taken) == max(second.taken) > 3
    assert [c for c in done.counters if c.counter == "tokenize_calls"] == []


def test_the_costliest_steps_of_a_count_are_those_that_were_counted() -> None:
    def counts(mask: list[int]) -> counting.Counts:
        return {"compile": [9, 9], "mask": [*mask, *mask], "consume": [1, 1, 1] * 2}

    one = {("0", "base"): counts([10, 500, 20]), ("0", "head"): counts([10, 700, 20])}
    verified = Answer(vocab="v", cases={"a": CaseAnswer(("s", "t"), 6, counted="t")})
    first, *_ = counting._costliest([one, one], verified)
    assert (first.case, first.text, first.step, first.unit) == ("a", "t", 1, "instructions")
    assert (first.base, first.head) == (501, 701)
