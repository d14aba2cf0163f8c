"""Batches: every mask is the one that a matcher alone computes; times are of what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import faulty_engine
import numpy as np
import pytest
from conftest import Lab
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_plots import assert_readable, panels

from llgbench.asv import batch_suite
from llgbench.asv.cells import Run
from llgbench.commands.batch import row
from llgbench.commands.options import numbers
from llgbench.decode import batch_recording
from llgbench.decode.batch import WARM_UP, Batch, Plan
from llgbench.decode.batch_recording import Request
from llgbench.decode.batch_summary import METHODS, Method, require, summarize
from llgbench.decode.measurement import decodable
from llgbench.engines.engine import TokenArray, Tokenizer
from llgbench.errors import GrammarError, InputError, RecordError, UnavailableError
from llgbench.inputs import case_file
from llgbench.measure.replay import with_end
from llgbench.measure.trace import trace_of
from llgbench.records.record import Record
from llgbench.report import batch as report_batch

BPE, CASE = "llama-bpe", "json-tool-call"


def traces(lab: Lab, of: str = CASE, vocab: str = BPE) -> dict[str, TokenArray]:
    tokenizer = lab.tokenizer(vocab, "greedy_tokenize")
    return {
        t.name: with_end(trace_of(t, lab.vocab(vocab)), tokenizer)
        for t in decodable(case_file.load(of))
    }


@pytest.fixture(scope="module")
def tool_call(lab: Lab) -> Iterator[Batch]:
    tokenizer = lab.tokenizer(BPE, "greedy_tokenize")
    with Batch(tokenizer, case_file.load(CASE).lark(), traces(lab)) as opened:
        yield opened


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory, _vocabs_here: None) -> Record:
    request = Request(
        vocabs=("llama-spm",), sequences=(1, 5), threads=(1, 2), steps=40, shape="nano"
    )
    return batch_recording.record(request, tmp_path_factory.mktemp("batch"))


# ---- the masks ----


def test_the_truth_is_what_a_matcher_says(lab: Lab, tool_call: Batch) -> None:
    tokenizer = lab.tokenizer(BPE, "greedy_tokenize")
    assert [t.name for t in tool_call.texts] == list(traces(lab))
    for text in tool_call.texts:
        with tokenizer.matcher(case_file.load(CASE).lark()) as matcher:
            for at, token in enumerate(text.tokens.tolist()):
                mask = matcher.mask()
                assert mask is not None
                assert np.array_equal(mask, text.masks[at])
                refused = int(text.refused[at])
                assert refused == 0xFFFFFFFF or matcher.validate([refused]) == 0
                assert matcher.consume(token)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("sequences", [1, 3, 40])
def test_every_mask_of_a_batch_is_the_same_as_alone(
    tool_call: Batch, sequences: int, threads: int, method: Method
) -> None:
    done = tool_call.run(Plan(sequences, threads, steps=120), method)
    assert done.fault == ""
    assert len(done.steps) == 120
    assert done.masks == sequences * (120 + WARM_UP)
    assert np.array_equal(done.steps["n_masks"], np.full(120, sequences))


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sequences=st.integers(1, 24), threads=st.integers(1, 6), draft=st.integers(0, 8),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_no_plan_changes_a_mask(
    tool_call: Batch, sequences: int, threads: int, draft: int, seed: int
) -> None:
    plan = Plan(sequences, threads, steps=30, draft=draft, seed=seed)
    assert tool_call.run(plan).fault == ""


def test_a_cold_elder_has_the_same_masks_and_is_left_as_it_is(lab: Lab) -> None:
    tokenizer = lab.tokenizer(BPE, "greedy_tokenize")
    with Batch(tokenizer, case_file.load(CASE).lark(), traces(lab), cold=True) as cold:
        for method in METHODS:
            assert cold.run(Plan(6, 2, steps=60), method).fault == ""


def test_texts_end_and_begin_again(tool_call: Batch) -> None:
    lengths = [len(text.tokens) for text in tool_call.texts]
    n = 3 * sum(lengths)
    done = tool_call.run(Plan(1, 1, steps=n))
    # One sequence goes through all texts in turn, from wherever it began.
    assert int(done.steps["n_clones"].sum()) == 3 * len(lengths)
    begun = np.flatnonzero(done.steps["n_clones"])
    assert set(np.diff(begun).tolist()) == set(lengths)
    assert (done.steps["clone_ns"][begun] > 0).all()


def test_sequences_are_at_different_places(tool_call: Batch) -> None:
    done = tool_call.run(Plan(60, 2, steps=40))
    # Were they in step, the texts would end together, and in most steps none would.
    assert int((done.steps["n_clones"] > 0).sum()) > 20


# ---- the times ----


@pytest.mark.parametrize("draft", [0, 3])
def test_the_slowest_sequence_is_not_later_than_the_step(tool_call: Batch, draft: int) -> None:
    for threads in (1, 3):
        s = tool_call.run(Plan(9, threads, steps=60, draft=draft)).steps
        assert (s["slowest_ns"] > 0).all()
        assert (s["slowest_ns"] <= s["step_ns"] + 2).all()
        assert (s["slowest_ns"] <= s["work_ns"]).all()
        # No thread works on two sequences at once.
        assert (s["work_ns"] <= threads * s["step_ns"] + 2 * 9).all()
        inner = s["validate_ns"] + s["ahead_ns"] + s["rollback_ns"]
        assert (inner <= s["work_ns"] + 4 * 9).all()
        assert bool(inner.any()) == bool(draft)


def test_threads_work_at_the_same_time(tmp_path: Path, lab: Lab) -> None:
    slow = faulty_engine.build(tmp_path, "llg_matcher_compute_mask", "usleep(20000);")
    with _on(slow, lab) as subject:
        one = subject.run(Plan(4, 1, steps=2)).steps
        four = subject.run(Plan(4, 4, steps=2)).steps
    assert (one["step_ns"] >= 4 * 20_000_000).all()
    assert (four["work_ns"] >= 4 * 20_000_000).all()
    assert (four["step_ns"] < four["work_ns"]).all()


# ---- drafts ----


def test_drafts_are_refused_and_taken_back(tool_call: Batch) -> None:
    s = tool_call.run(Plan(5, 2, steps=100, draft=4)).steps
    drafted, valid, back = (int(s[name].sum()) for name in ("n_drafted", "n_valid", "n_back"))
    assert 0 < drafted <= 5 * 4 * 100
    assert 0 < valid < drafted
    assert 0 < back < valid
    assert 0 < int(s["n_rollbacks"].sum()) <= 5 * 100
    again = tool_call.run(Plan(5, 1, steps=100, draft=4)).steps
    other = tool_call.run(Plan(5, 2, steps=100, draft=4, seed=7)).steps
    for name in ("n_drafted", "n_valid", "n_back", "n_clones"):
        assert np.array_equal(s[name], again[name])
    assert not np.array_equal(s["n_valid"], other["n_valid"])


def test_a_draft_saves_steps(tool_call: Batch) -> None:
    plain, drafted = (tool_call.run(Plan(4, 1, steps=200, draft=d)).steps for d in (0, 4))
    assert int(drafted["n_clones"].sum()) > int(plain["n_clones"].sum())


# ---- what is wrong has no time ----


def _on(library: Path, lab: Lab) -> Batch:
    from llgbench.engines import engine
    from llgbench.inputs import variant
    from llgbench.llama import bridge

    loaded = engine.load(library)
    tokenizer: Tokenizer = bridge.build(loaded, lab.vocab(BPE), variant.get("greedy_tokenize"))
    return Batch(tokenizer, case_file.load(CASE).lark(), traces(lab))


_ON_A_THREAD = """
    int32_t status = TRUTH;
    if (gettid() != getpid()) {
        uint32_t *mask = (uint32_t *)REAL(llg_matcher_get_mask)(a);
        if (mask) mask[100] ^= 4;
    }
    return status;
"""


@pytest.mark.parametrize("draft", [0, 2])
def test_a_bit_that_differs_on_a_thread_is_found(tmp_path: Path, lab: Lab, draft: int) -> None:
    engine = faulty_engine.build(
        tmp_path, "llg_matcher_compute_mask", f"const uint32_t *llg_matcher_get_mask(void *);"
        f"{_ON_A_THREAD}",
    )  # fmt: skip
    with _on(engine, lab) as subject:
        done = subject.run(Plan(3, 2, steps=20, draft=draft))
    assert "is not as one matcher has it alone" in done.fault
    assert len(done.steps) == 0


@pytest.mark.parametrize(
    ("function", "body"),
    [
        ("llg_matcher_rollback", "b = b > 1 ? b - 1 : b;"),
        ("llg_matcher_rollback", "return 0;"),
        ("llg_matcher_validate_tokens", "if (c > 1) return (int32_t)c;"),
        ("llg_matcher_rollback", "return -1;"),
        ("llg_matcher_consume_token", "if (gettid() != getpid()) return -1;"),
    ],
)
def test_a_draft_that_goes_wrong_is_found(
    tmp_path: Path, lab: Lab, function: str, body: str
) -> None:
    with _on(faulty_engine.build(tmp_path, function, body), lab) as subject:
        assert subject.run(Plan(3, 2, steps=20)).fault == ""
        done = subject.run(Plan(3, 2, steps=60, draft=4))
    assert done.fault
    assert len(done.steps) == 0


def test_a_text_that_the_grammar_rejects_is_left_out(lab: Lab) -> None:
    tokenizer = lab.tokenizer(BPE, "greedy_tokenize")
    given = {"other": lab.vocab(BPE).trace(b"no json"), **traces(lab)}
    with Batch(tokenizer, case_file.load(CASE).lark(), given) as opened:
        assert list(opened.left_out) == ["other"]
        assert "other" not in [t.name for t in opened.texts]
        assert opened.run(Plan(4, 2, steps=20)).fault == ""
    with pytest.raises(UnavailableError, match="no text to go along: other: the grammar rejects"):
        Batch(tokenizer, case_file.load(CASE).lark(), {"other": given["other"]})
    with pytest.raises(GrammarError):
        Batch(tokenizer, "start: nowhere", given)


def test_what_cannot_be_done_is_refused(tool_call: Batch) -> None:
    for wrong in ({"sequences": 0}, {"threads": 0}, {"steps": 0}, {"draft": 65}, {"draft": -1}):
        with pytest.raises(InputError):
            Plan(**{"sequences": 1, "threads": 1, **wrong})
    with pytest.raises(InputError, match="computes no drafts"):
        tool_call.run(Plan(1, 1, draft=2), "llg_par_compute_mask")


# ---- records, report, ASV ----


def test_a_record_has_every_batch(record: Record) -> None:
    found = [(e.facts["sequences"], e.facts["threads"], e.facts["method"]) for e in record.entries]
    assert found == [(n, t, m) for t in (1, 2) for n in (1, 5) for m in METHODS]
    for entry in record.entries:
        require(entry, "here")
        assert entry.verdict["label"] == "right"
        assert entry.facts["masks_compared"] == entry.facts["sequences"] * (40 + WARM_UP)
        s = summarize(entry)
        assert s is not None
        assert s.decode is not None
        assert s.decode > 0
        assert s.p99 is None, "forty steps carry no p99"
        assert (s.mask is None) == (s.method != "pool")
        if s.busy is not None:
            assert 0 < s.busy <= 1.001
        assert row(entry)["verdict"] == "right"


def test_a_damaged_record_is_refused(record: Record) -> None:
    from dataclasses import replace

    entry = record.entries[0]
    for facts in ({"method": 3}, {"sequences": -1}, {"kind": "decode"}):
        with pytest.raises(RecordError):
            require(replace(entry, facts={**entry.facts, **facts}), "here")
    samples = {**entry.samples, "work": [entry.samples["work"][0][:3]]}
    with pytest.raises(RecordError, match="not of the same steps"):
        require(replace(entry, samples=samples), "here")
    with pytest.raises(RecordError, match="no steps"):
        require(replace(entry, samples={}), "here")
    with pytest.raises(RecordError, match="the verdict is incomplete"):
        require(replace(entry, verdict={}), "here")


def test_the_report_draws_and_lists_it(record: Record, tmp_path: Path) -> None:
    text = report_batch.write(record, tmp_path)
    assert (tmp_path / report_batch.PICTURE).read_bytes().startswith(b"\x89PNG")
    assert f"]({report_batch.PICTURE})" in text
    assert text.count("| right |") == len(record.entries)
    assert "synthetic nano on cpu" in text


def test_the_picture_is_readable_and_tells_lines_apart(record: Record) -> None:
    """Lines that coincide as well: each is thinner than those under it, with marks of its own."""
    others = [
        replace(
            e, configuration=replace(e.configuration, vocab=v, variant="greedy_lexeme_fallback")
        )
        for e in record.entries
        for v in ("gemma-4", "a-vocabulary-of-a-long-name")
    ]
    for entries in (record.entries, [*record.entries, *others]):
        figure = report_batch.picture(replace(record, entries=tuple(entries)))
        assert figure is not None
        assert_readable(figure)
        for ax in panels(figure):
            lines = [of for of in ax.get_lines() if "thread" in str(of.get_label())]
            assert len(lines) == 4
            for under, over in pairwise(lines):
                assert under.get_linewidth() > over.get_linewidth()
                assert under.get_markersize() > over.get_markersize()
            assert len({of.get_marker() for of in lines}) == 4
            assert {of.get_markerfacecolor() for of in lines} == {"white"}
            (decode,) = (of for of in ax.get_lines() if of.get_label() == "decode")
            assert decode.get_color() not in {of.get_color() for of in lines}


@pytest.mark.usefixtures("_vocabs_here")
def test_asv_gets_every_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_suite, "VOCAB", "llama-spm")
    monkeypatch.setattr(batch_suite, "request", partial(batch_suite.request, steps=60))
    run = Run(str(tmp_path), "batch", str(tmp_path / "results"))
    for threads in batch_suite.THREADS:
        found = batch_suite.batch(run, "2", threads).values
        wanted = {"step_p50", "consume", "clone", "validate", "drafted", "rollback"}
        assert {name for name, value in found.items() if value is not None} >= wanted


# ---- the command ----


def llgbench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llgbench.commands.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("_vocabs_here")
def test_the_command_prints_a_table_and_json(tmp_path: Path) -> None:
    given = ["batch", "--vocab", "llama-spm", "--sequences", "2,3", "--threads", "2"]
    given += ["--steps", "20"]
    done = llgbench(*given, "--draft", "2", "--results", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert [b["seqs"] for b in found["batches"]] == [2, 3]
    assert all(b["validate avg"] > 0 and b["verdict"] == "right" for b in found["batches"])
    table = llgbench(*given, "--results", str(tmp_path))
    assert "no decode was timed" in table.stdout
    assert table.stdout.count("llg_par_compute_mask") == 2


@pytest.mark.usefixtures("_vocabs_here")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sequences", "1,0"], "'0' is not a whole number from 1 to 4096"),
        (["--threads", "two"], "'two' is not a whole number"),
        (["--device", "cpu"], "give --model or --shape"),
        (["--seed", "1"], "give --draft"),
        (["--shape", "nano", "--model", "x.gguf"], "not both"),
        (["--case", "nowhere"], "unknown case"),
        (["--model", "nowhere.gguf"], "no such model"),
        (
            ["--shape", "nano", "--device", "cuda7", "--vocab", "llama-spm"],
            "no such device, only CPU",
        ),
        (["--variant", "token_to_piece", "--vocab", "llama-spm", "--steps", "5"], "a mask fails"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = llgbench("batch", *arguments, "--results", str(tmp_path))
    assert done.returncode == 2, done.stdout
    [line] = done.stderr.splitlines()
    assert words in line
    assert not list(tmp_path.rglob("*.jsonl"))


@given(st.lists(st.integers(1, 99), min_size=1, max_size=9))
def test_numbers_are_read_in_their_order(given: list[int]) -> None:
    assert numbers(1, 99)(",".join(map(str, given))) == tuple(dict.fromkeys(given))


@given(st.text(max_size=12))
def test_what_is_no_list_of_numbers_is_refused(text: str) -> None:
    parts = [part.strip() for part in text.split(",")]
    if all(p.isascii() and p.isdecimal() and 3 <= int(p) <= 99 for p in parts):
        assert set(numbers(3, 99)(text)) == {int(p) for p in parts}
        return
    with pytest.raises(click.BadParameter, match="is not a whole number from 3 to 99"):
        numbers(3, 99)(text)
