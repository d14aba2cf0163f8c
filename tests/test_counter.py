"""Counting jobs as data: what is written, and that nothing malformed is read."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from conftest import Lab
from hypothesis import given
from hypothesis import strategies as st
from llgbench._native import ffi, lib

from llgbench.engines.engine import Engine
from llgbench.errors import CompareError
from llgbench.inputs.variant import get
from llgbench.measure import stubs
from llgbench.measure.counter import (
    Compile,
    Free,
    JobBuilder,
    MakeTokenizer,
    Mask,
    OpenEngine,
    Recorded,
    Replay,
    Reset,
    SetThreshold,
    Step,
    encode_job,
)

LENS = np.ones(256, np.uint32)
BYTES = np.frombuffer(bytes(range(256)), np.uint8)


def steps_of(wheel: Engine) -> list[Step]:
    return [
        OpenEngine(wheel.path),
        MakeTokenizer(0, LENS, BYTES, 0xFFFFFFFF, None),
        Compile(0, 0, 'start: "abc" /[0-9]*/\n'),
        Replay(0, np.array([97, 98, 99, 49, 33], np.uint32)),
        Reset(0),
        Replay(0, np.array([97, 120], np.uint32)),
        Free(0),
    ]


def run(job: bytes, n_results: int = 16) -> tuple[str, list[int]]:
    """Do an encoded job; return the error, and how many tokens each step took."""
    # A copy of its own size, so that a tool for memory errors sees what is read beyond it.
    data = ffi.new("uint8_t[]", job)
    results = ffi.new("lb_count_result[]", n_results)
    error = ffi.new("char[]", 512)
    sources = ffi.new("lb_tokenize_source[]", 1)
    status = lib.lb_count_run(data, len(job), sources, 0, results, n_results, error, 512)
    said = ffi.string(error).decode(errors="replace")
    assert (status != 0) == bool(said)
    return said, [int(result.taken) for result in results]


def test_a_replay_ends_where_the_grammar_does(wheel: Engine) -> None:
    said, taken = run(encode_job(steps_of(wheel)))
    assert not said
    assert taken[:7] == [0, 0, 0, 4, 0, 1, 0]


@given(share=st.floats(0, 1, exclude_max=True))
def test_a_job_that_is_cut_short_is_refused(wheel: Engine, share: float) -> None:
    job = encode_job(steps_of(wheel))
    said, _ = run(job[: int(share * len(job))])
    assert said


@given(data=st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    said, _ = run(data)
    assert said or data == struct.pack("=II", lib.LB_JOB_VERSION, 0)


@given(words=st.lists(st.integers(0, 9) | st.integers(0, 2**32 - 1), max_size=40))
def test_steps_of_any_words_are_refused(words: list[int]) -> None:
    """No engine, so whatever the words name is not there."""
    said, _ = run(struct.pack(f"={len(words) + 2}I", lib.LB_JOB_VERSION, 16, *words))
    assert said


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (OpenEngine(Path("/nowhere/engine.so")), "cannot open shared object"),
        (MakeTokenizer(3, LENS, BYTES, 0, None), "engine 3 of 1"),
        (MakeTokenizer(0, LENS, BYTES[:9], 0, None), "do not have its bytes"),
        (MakeTokenizer(0, LENS, BYTES, 0, 0), "unknown source"),
        (Compile(0, 5, "start: /a/"), "tokenizer 5 of 1"),
        (Compile(99, 0, "start: /a/"), "matcher 99"),
        (Compile(0, 0, "start: nothing"), "does not compile"),
        (Reset(0), "matcher 0 is not there yet"),
        (Replay(1, LENS), "matcher 1 is not there yet"),
        (SetThreshold(1, 2**40), "matcher 1 is not there yet"),
    ],
)
def test_what_cannot_be_done_is_said(wheel: Engine, extra: Step, message: str) -> None:
    said, _ = run(encode_job([*steps_of(wheel), extra]))
    assert message in said


@pytest.mark.parametrize(
    ("extra", "name"),
    [
        (Mask(0, "x"), "llgx_matcher_drop_mask_cache"),
        (SetThreshold(0, 2**40), "llgx_matcher_set_fallback_threshold"),
    ],
)
def test_what_an_engine_cannot_do_is_said(wheel: Engine, extra: Step, name: str) -> None:
    steps = [*steps_of(wheel)[:-1], extra]
    assert f"does not export {name}" in run(encode_job(steps))[0]


def test_more_steps_than_there_is_room_for(wheel: Engine) -> None:
    said, _ = run(encode_job(steps_of(wheel)), n_results=3)
    assert "there is room for 3" in said


def test_what_is_recorded_is_llama_cpps(lab: Lab, wheel: Engine, tmp_path: Path) -> None:
    vocab = lab.vocab("llama-bpe")
    builder = JobBuilder()
    tokenizer = builder.tokenizer(wheel, vocab, get("greedy_tokenize"))
    builder.add(
        Compile(0, tokenizer, 'start: "Hello world, hello" /[0-9]/\n'),
        Replay(0, vocab.trace(b"Hello world, hello1")),
    )
    recorded = builder.record(tmp_path)
    assert recorded == Recorded.from_json(recorded.to_json())
    assert recorded.taken[-1] == len(vocab.trace(b"Hello world, hello1"))
    assert recorded.asked[:2] == (0, 0)
    assert sum(recorded.asked) > 0
    data = np.fromfile(recorded.recording, np.uint8).tobytes()
    words, seen = struct.unpack_from("=III", data), 0
    assert words[:2] == (lib.LB_JOB_VERSION, 1)
    at = 12
    for _ in range(words[2]):
        (n,) = struct.unpack_from("=I", data, at)
        question = data[at + 4 : at + 4 + n]
        at += 4 + n + -n % 4
        (n,) = struct.unpack_from("=I", data, at)
        tokens = np.frombuffer(data, np.uint32, n, at + 4)
        at += 4 + 4 * n
        if not question.startswith(b"\xff"):
            assert tokens.tolist() == vocab.tokenize(question, parse_special=True).tolist()
            seen += 1
    assert seen == words[2] > 0


def test_a_grammar_that_does_not_compile_is_said(lab: Lab, wheel: Engine, tmp_path: Path) -> None:
    builder = JobBuilder()
    tokenizer = builder.tokenizer(wheel, lab.vocab("llama-spm"), get("greedy_tokenize"))
    builder.add(Compile(0, tokenizer, "start: %%%"))
    with pytest.raises(CompareError, match="does not compile"):
        builder.record(tmp_path)


def test_stand_ins_are_for_what_a_library_wants_of_python(wheel: Engine, tmp_path: Path) -> None:
    names = stubs.python_symbols(wheel.path)
    assert {"Py_DecRef", "PyErr_SetString"} <= set(names)
    assert stubs.python_symbols(Path(__file__)) == []
    source = stubs.source(names)
    assert all(f" {name}(" in source for name in names)
    cut = tmp_path / "cut.so"
    cut.write_bytes(wheel.path.read_bytes()[:5000])
    with pytest.raises(OSError, match="cut short"):
        stubs.python_symbols(cut)
