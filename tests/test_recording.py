"""A run stored as it goes, killed, and continued on what may have changed meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from llgbench.engines import registry
from llgbench.inputs import case_file, catalogue
from llgbench.inputs.case import Case, Outcome, Text
from llgbench.inputs.configuration import Configuration
from llgbench.measure import recording
from llgbench.measure.recording import Recorded
from llgbench.measure.rounds import Rounds

ROUNDS = Rounds(cold=1, warm=1, cached=0)

pytestmark = pytest.mark.usefixtures("lab")


class Run:
    """Runs recorded into one folder, with what is said of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.again: dict[Configuration, str] = {}
        self.resumed = 0

    def __call__(
        self, wanted: Sequence[Configuration], cases: dict[str, Case] | None = None,
        *, retry: bool = False,
    ) -> Recorded:  # fmt: skip
        self.again.clear()
        self.resumed = 0

        def resumed(_: Path, count: int) -> None:
            self.resumed = count

        def again(configuration: Configuration, why: str) -> None:
            self.again[configuration] = why

        return recording.record(
            wanted, ROUNDS, cases=cases, results=self.folder, retry=retry, resumed=resumed,
            again=again,
        )  # fmt: skip

    def kill(self, entries: int = 1) -> None:
        """Make the record what a run killed after so many entries leaves."""
        (path,) = (self.folder / "records").glob("*.jsonl")
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[: 1 + entries]))


def own(name: str, grammar: str, folder: Path) -> Case:
    return Case(name, "lark", grammar, folder, "", (Text("a", b"a", Outcome()),))


def test_what_is_stored_of_the_same_inputs_is_not_measured_again(tmp_path: Path) -> None:
    run = Run(tmp_path / "results")
    wanted = [Configuration(name, "llama-spm", "greedy_tokenize") for name in ("listed", "ab-abc")]
    first = run(wanted)
    assert run.resumed == 0
    run.kill()
    second = run(wanted)
    assert run.resumed == 1
    assert not run.again
    assert second.record.complete
    one, same = (r.record.entries[0].samples["cold_mask"][0] for r in (first, second))
    assert one.tolist() == same.tolist()  # the very samples


def test_a_changed_case_is_measured_again_and_said_so(tmp_path: Path) -> None:
    run = Run(tmp_path / "results")
    cases = {name: own(name, 'start: "a"', tmp_path) for name in ("one", "two")}
    wanted = [Configuration(name, "llama-spm", "greedy_tokenize") for name in cases]
    run(wanted, cases)
    run.kill()
    cases["one"] = own("one", "start: /[a-z]{1,9}/", tmp_path)
    found = run(wanted, cases)
    assert run.again == {wanted[0]: "another case"}
    (entry,) = (e for e in found.record.entries if e.configuration == wanted[0])
    assert entry.facts["case_digest"] == cases["one"].digest
    assert len(found.record.entries) == 2


def test_a_rebuilt_engine_and_a_replaced_vocab_are_measured_again(tmp_path: Path) -> None:
    run = Run(tmp_path / "results")
    wheel = registry.wheel_path()
    assert wheel is not None
    engine = tmp_path / "mine.so"
    shutil.copy(wheel, engine)
    gguf = shutil.copy(catalogue.vocab_path("llama-spm"), tmp_path / "v.gguf")
    wanted = [
        Configuration(name, str(gguf), "greedy_tokenize", str(engine))
        for name in ("listed", "ab-abc")
    ]
    run(wanted)
    run.kill()
    with engine.open("ab") as file:
        file.write(b"\0")  # behind what is loaded: another library, for all that a hash can tell
    run(wanted)
    assert run.again == {wanted[0]: "another engine"}
    run.kill()
    shutil.copy(catalogue.vocab_path("phi-3"), gguf)
    run(wanted)
    assert run.again == {wanted[0]: "another vocab and engine"}


def test_an_engine_that_is_there_meanwhile_is_used(tmp_path: Path) -> None:
    run = Run(tmp_path / "results")
    wheel = registry.wheel_path()
    assert wheel is not None
    engine = tmp_path / "mine.so"
    wanted = [
        Configuration("listed", "llama-spm", "greedy_tokenize", str(engine)),
        Configuration("listed", "llama-spm", "greedy_tokenize"),
    ]
    first = run(wanted)
    assert first.record.entries[0].unavailable is not None
    run.kill()
    shutil.copy(wheel, engine)
    found = run(wanted)
    assert run.again == {wanted[0]: "another engine"}
    assert all(e.unavailable is None for e in found.record.entries)


def test_what_was_not_available_is_tried_again_only_when_asked(tmp_path: Path) -> None:
    run = Run(tmp_path / "results")
    bad = Configuration("bad", "llama-spm", "greedy_tokenize")
    good = Configuration("listed", "llama-spm", "greedy_tokenize")
    cases = {"bad": own("bad", "start: nowhere", tmp_path)}
    for retry in (False, True):
        run([bad, good], cases)
        run.kill()
        run([bad, good], cases, retry=retry)
        assert (bad in run.again) == retry
        shutil.rmtree(run.folder)


def test_a_run_that_measures_nothing_leaves_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path / "results")
    cases = {"bad": own("bad", "start: nowhere", tmp_path / "bad.lark")}
    wanted = [Configuration("bad", "llama-spm", "greedy_tokenize")]
    found = run(wanted, cases)
    assert found.nothing is not None
    assert "bad.lark" in found.nothing
    assert not run.folder.exists()


def test_limits_and_inputs_are_recorded(tmp_path: Path) -> None:
    run = Run(tmp_path / "results")
    wanted = [Configuration("listed", "llama-spm", "greedy_tokenize")]
    found = run(wanted).record
    assert found.provenance["limits"].keys() == {"seconds", "memory_mib"}
    inputs = found.entries[0].facts["inputs"]
    assert inputs["case"] == case_file.load("listed").digest
    assert len(inputs["vocab"]) == len(inputs["engine"]) == 64


def test_no_journal_stays(tmp_path: Path) -> None:
    run = Run(tmp_path / "results")
    run([Configuration("listed", "llama-spm", "greedy_tokenize")])
    assert [p.suffix for p in (run.folder / "records").iterdir()] == [".jsonl"]


def test_the_record_of_another_run_is_left_alone(tmp_path: Path) -> None:
    run = Run(tmp_path / "results")
    one = Configuration("listed", "llama-spm", "greedy_tokenize")
    run([one])
    run.kill(0)
    run([replace(one, variant="baseline")])
    assert run.resumed == 0
    assert len(list((run.folder / "records").glob("*.jsonl"))) == 2
