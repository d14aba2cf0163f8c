"""The fallback's overhead in instructions: counts that repeat, work that does not grow, limits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from llgbench.asv import cells
from llgbench.asv import fallback_suite as suite
from llgbench.engines import build
from llgbench.engines.engine import load
from llgbench.errors import RecordError, UnavailableError
from llgbench.fallback import counted as overhead_counting
from llgbench.fallback import counted_jobs, overhead
from llgbench.fallback import summary as overhead_summary
from llgbench.fallback.states import points
from llgbench.measure import callgrind
from llgbench.measure.runner import Workbench

built = pytest.mark.skipif(
    any(build.cached(flavour) is None for flavour in ("stock", "fallback")),
    reason="the engines are not built (llgbench engine build stock fallback)",
)
counts = pytest.mark.skipif(
    callgrind.missing() is not None, reason=callgrind.missing() or "valgrind is here"
)


@built
@counts
def test_a_side_against_itself_differs_by_thousandths_at_most(tmp_path: Path) -> None:
    _, engine = overhead.engines()
    copy = tmp_path / "copy.so"
    shutil.copyfile(engine.path, copy)
    sides = {"a": engine, "b": load(copy)}
    recorded = counted_jobs.json_job(
        sides, engine.fallback_option or "", "llama-spm", ("json-tool-call",), tmp_path
    )
    assert len(set(recorded.taken) - {0}) == 1
    assert max(recorded.taken) > 50
    sums = {name: sum(counts) for name, counts in overhead_counting.sums_of(recorded, 0).items()}
    for kind in ("cold", "warm"):
        for part in ("mask", "consume"):
            a, b = (sums[f"json-tool-call {side} {kind} {part} sum"] for side in "ab")
            assert a > 100_000
            # Hash maps differ with the address, and building the lexer's states hashes more. One
            # process shows it whole; what is published is the mean of several.
            bound = 0.001 if (kind, part) == ("warm", "mask") else 0.003
            assert b / a == pytest.approx(1, abs=bound), (kind, part)
    # The lexer's states are built in the first replay alone.
    assert sums["json-tool-call a cold mask sum"] > sums["json-tool-call a warm mask sum"]


@built
@counts
def test_the_curve_counts_every_step_and_shadow_does_not_grow() -> None:
    found = {(p.n, p.strategy): p for p in overhead_counting.curve((128, 1024))}
    assert len(found) == 4
    short, long = found[128, "shadow"], found[1024, "shadow"]
    assert (short.steps, long.steps) == (65, 513)  # two bytes a token
    assert 0 < short.median <= short.costliest
    assert long.costliest < 1.05 * short.costliest
    # Replay only reads all bytes after the boundary again, once a step; the shadow 64 at most.
    work = {key: point.work["reread_bytes"] for key, point in found.items() if point.work}
    assert work[1024, "replay"] > 3 * work[128, "replay"] > 128
    assert work[1024, "shadow"] == work[128, "shadow"] < 128
    assert found[1024, "replay"].median > 1.2 * found[128, "replay"].median


@built
def test_work_grows_with_n_by_replay_alone() -> None:
    _, engine = overhead.engines()
    with Workbench("llama-spm") as bench:
        work = {
            (n, strategy): overhead_counting.work(n, strategy, engine, bench)
            for n, strategy in points((256, 1024))
        }
    assert work[256, "shadow"] == work[1024, "shadow"]
    assert work[1024, "replay"]["reread_bytes"] > 3 * work[256, "replay"]["reread_bytes"]


def test_without_valgrind_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="apt-get install valgrind"):
        overhead_counting.on_json("llama-spm")
    run = cells.Run(str(tmp_path), "mark")
    with pytest.raises(NotImplementedError, match="valgrind"):
        suite.counted_ratios(run, suite.COUNTED_CASES[0])
    for state in suite.PENDING:
        with pytest.raises(NotImplementedError, match="valgrind"):
            suite.counted_pending(run, state)
    with pytest.raises(NotImplementedError, match="valgrind"):
        suite.counted_checkpoint(run, suite.COUNTED_LENGTHS[0], suite.STRATEGIES[0])


# ---- the summary ----


def _ratios(case: str, kind: str, **values: float) -> dict[str, Any]:
    ones = dict.fromkeys(suite._COUNTED_RATIOS, 1.0)
    return {"case": case, "kind": kind, **ones, **values}


FOUND: dict[str, list[dict[str, Any]]] = {
    "ratios": [_ratios("a", "cold", off_mask=1.003), _ratios("b", "warm", on_step=1.02)],
    "pending": [
        {"state": "x", "instructions / costlier": 1.5, "time / costlier": 2.5},
        {"state": "y", "instructions / costlier": 1.7, "time / costlier": 1.1},
    ],
    "checkpoints": [
        {"n": 256, "strategy": "shadow", "costliest": 1000},
        {"n": 256, "strategy": "replay", "costliest": 9000},
        {"n": 16384, "strategy": "shadow", "costliest": 1300},
    ],
    "memory": [{"n": 256, "beyond": 4016}, {"n": 16384, "beyond": 4016 + (16384 - 256) // 2}],
}


def test_the_summary_holds_the_worst_against_its_limit() -> None:
    rows = {row["what"]: row for row in overhead_summary.summary(FOUND)}
    off = rows["off / stock: mask, instructions"]
    assert (off["measured"], off["at"], off["met"]) == (1.003, "a, cold", False)
    on = rows["on / off, no boundary pending: mask + token, instructions"]
    assert (on["measured"], on["at"], on["met"]) == (1.02, "b, warm", True)
    pending = "mask with a boundary pending / the costlier reading's alone, "
    assert (rows[f"{pending}time"]["at"], rows[f"{pending}time"]["met"]) == ("x", False)
    counted = rows[f"{pending}instructions"]
    assert (counted["at"], counted["measured"]) == ("y", 1.7)
    costliest = rows["costliest step of a checkpoint, n = 16384 / 256, instructions"]
    assert (costliest["measured"], costliest["met"]) == (1.3, False)
    memory = rows["heap beyond the option off, bytes per byte of n"]
    assert (memory["measured"], memory["met"]) == (0.5, False)


def test_what_was_not_measured_has_no_row() -> None:
    short = {**FOUND, "checkpoints": FOUND["checkpoints"][:2], "memory": []}
    whats = " ".join(row["what"] for row in overhead_summary.summary(short))
    assert "checkpoint" not in whats
    assert "heap" not in whats
    assert overhead_summary.summary({}) == []


def test_what_was_measured_is_kept_for_the_report(tmp_path: Path) -> None:
    assert overhead_summary.load(tmp_path) is None
    path = overhead_summary.save(tmp_path, {"vocab": "v", **FOUND})
    found = overhead_summary.load(tmp_path)
    assert found is not None
    assert found["ratios"] == FOUND["ratios"]
    path.write_text(json.dumps({**found, "schema": 99}))
    with pytest.raises(RecordError, match="overhead --count"):
        overhead_summary.load(tmp_path)
    path.write_text("{")
    with pytest.raises(RecordError, match=r"overhead\.json: .*truncated"):
        overhead_summary.load(tmp_path)
