"""A sweep over a few MaskBench files: kept line by line, continued, refused in one line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Lab
from in_process import llgbench
from test_cli import refused

from llgbench.errors import RecordError, UnavailableError
from llgbench.inputs.maskbench import load_maskbench
from llgbench.isolated import Limits
from llgbench.output import steps
from llgbench.peers import sweep
from llgbench.peers.sweep import Kept, Plan

FEW = ("BFCL_java_89.json", "BFCL_javascript_3.json", "BFCL_multiple_166.json")
LIMITS = Limits(120, 12_000)


@pytest.fixture
def folder(maskbench: Path, tmp_path: Path) -> Path:
    place = tmp_path / "schemas"
    place.mkdir()
    for name in FEW:
        shutil.copy(maskbench / name, place)
    return place


def plan(folder: Path, *engines: str, jobs: int = 1) -> Plan:
    cases = tuple(load_maskbench(folder))
    return Plan(engines, cases, "llama-spm", "spaced", "wheel", LIMITS, jobs)


def test_a_sweep_in_small(folder: Path, tmp_path: Path, xgrammar: str, lab: Lab) -> None:
    file = tmp_path / "sweep.jsonl"
    wanted = plan(folder, "wheel", xgrammar, "gbnf", jobs=2)
    found = sweep.run(wanted, file, steps)
    assert [(r.engine, r.case) for r in found] == [
        (engine, case.name) for engine in wanted.engines for case in wanted.cases
    ]
    # To llama.cpp's converter the schema {}, which allows anything, is an object.
    assert {(r.engine, r.case): r.outcome for r in found if r.outcome != "right"} == {
        ("gbnf", "BFCL_java_89"): "refuses valid"
    }
    assert all(r.masks.steps > 0 for r in found)
    assert all(r.masks.differing == 0 for r in found if r.engine != "gbnf")

    whole = file.read_bytes()
    assert whole.count(b"\n") == 1 + len(found)
    # Cut in the middle of a line, as by a kill: one result is found again, the others are kept.
    file.write_bytes(whole[:-20])
    again = sweep.run(wanted, file, steps)
    assert {(r.engine, r.case): r.masks for r in again} == {
        (r.engine, r.case): r.masks for r in found
    }
    assert file.read_bytes().count(b"\n") == 1 + len(found)

    rows = sweep.rows(found)
    assert [row["engine"] for row in rows] == ["wheel", xgrammar, "gbnf"]
    assert [(row["right"], row["refuses valid"]) for row in rows] == [(3, 0), (3, 0), (2, 1)]
    assert sweep.refusals(found) == []


def test_a_changed_schema_is_judged_again(folder: Path, tmp_path: Path, lab: Lab) -> None:
    file = tmp_path / "sweep.jsonl"
    sweep.run(plan(folder, "wheel"), file, steps)
    path = folder / FEW[0]
    content = json.loads(path.read_text())
    content["tests"] = [{**test, "valid": not test["valid"]} for test in content["tests"]]
    path.write_text(json.dumps(content))
    kept = Kept(file, plan(folder, "wheel"))
    assert len(kept.results) == len(FEW) - 1
    found = {r.case: r.outcome for r in sweep.run(plan(folder, "wheel"), file, steps)}
    assert found.pop(Path(FEW[0]).stem) in ("accepts invalid", "refuses valid")
    assert set(found.values()) == {"right"}


def test_another_sweeps_file_is_refused(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "sweep.jsonl"
    wanted = plan(folder, "wheel")
    Kept(file, wanted)
    for changed in (
        replace(wanted, white_space="compact"), replace(wanted, vocab="llama-bpe"),
        replace(wanted, limits=Limits(1, 1000)),
    ):  # fmt: skip
        with pytest.raises(RecordError, match="of another sweep"):
            Kept(file, changed)
    file.write_text("not JSON\n")
    with pytest.raises(RecordError, match="line 1"):
        Kept(file, wanted)


def test_jobs_require_joblib(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab
) -> None:
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(UnavailableError, match="pip install joblib"):
        sweep.run(plan(folder, "wheel", jobs=2), tmp_path / "s.jsonl", steps)


@pytest.mark.filterwarnings("ignore")  # Dask's own
def test_a_cluster_goes_on_where_a_worker_is_killed(folder: Path, tmp_path: Path, lab: Lab) -> None:
    distributed = pytest.importorskip("distributed")
    alone = sweep.run(plan(folder, "wheel"), tmp_path / "alone.jsonl", steps)
    killed: list[int] = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
            host="127.0.0.1",
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip

        class Killer:
            def doing(self, what: str) -> None:
                pass

            def done(self, n: int = 1) -> None:
                if not killed:
                    workers = client.run(os.getpid)
                    killed.append(min(workers.values()))
                    os.kill(killed[0], signal.SIGKILL)

        wanted = replace(plan(folder, "wheel"), scheduler=cluster.scheduler_address)
        file = tmp_path / "sweep.jsonl"
        found = sweep.run(wanted, file, lambda *_: nullcontext(Killer()))
    assert killed
    assert [(r.case, r.outcome, r.masks) for r in found] == [
        (r.case, r.outcome, r.masks) for r in alone
    ]
    assert file.read_bytes().count(b"\n") == 1 + len(found)


def test_a_scheduler_that_is_not_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab
) -> None:
    given: list[str | Path] = [
        "sweep",
        folder,
        "--engine",
        "wheel",
        "--output",
        tmp_path / "s.jsonl",
    ]
    words = refused(*given, "--scheduler", "nowhere://x")
    assert "no Dask scheduler answers" in words
    assert "--jobs does not go with --scheduler" in refused(
        *given, "--scheduler", "tcp://127.0.0.1:1", "--jobs", "2"
    )
    monkeypatch.setitem(sys.modules, "distributed", None)
    wanted = replace(plan(folder, "wheel"), scheduler="tcp://127.0.0.1:1")
    with pytest.raises(UnavailableError, match="pip install distributed"):
        sweep.run(wanted, tmp_path / "t.jsonl", steps)


def test_what_a_sweep_costs_by_itself_is_told_in_cpu_time(
    folder: Path, tmp_path: Path, lab: Lab
) -> None:
    found = sweep.run(plan(folder, "wheel"), tmp_path / "s.jsonl", steps)
    for r in found:
        assert 0 < r.inside_s < r.cpu_s, r
    (row,) = sweep.rows([replace(r, inside_s=1.0, cpu_s=1.07) for r in found])
    assert row["own cost"] == "7%"
    (row,) = sweep.rows([replace(r, inside_s=0.0) for r in found])  # none came to its end
    assert row["own cost"] is None


def test_the_command(folder: Path, tmp_path: Path, lab: Lab) -> None:
    file = tmp_path / "out.jsonl"
    done = llgbench(
        "sweep", folder, "--engine", "wheel", "--vocab", "llama-spm", "--output", file, "--json"
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["engines"]
    assert (row["engine"], row["right"]) == ("wheel", len(FEW))
    assert "no MaskBench files" in refused("sweep", tmp_path / "none", "--engine", "wheel")
    assert "unknown engine" in refused("sweep", folder, "--engine", "whee", "--output", file)
    assert "of another sweep" in refused("sweep", folder, "--engine", "wheel", "--output", file)
