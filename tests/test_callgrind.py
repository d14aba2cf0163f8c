"""Counting by callgrind: what runs in the counted process, and what is said where none can run."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Lab

from llgbench.engines.engine import Engine
from llgbench.errors import CompareError, UnavailableError
from llgbench.inputs.variant import get
from llgbench.measure import callgrind
from llgbench.measure.counter import (
    Compile,
    Free,
    JobBuilder,
    MakeTokenizer,
    OpenEngine,
    Recorded,
    Replay,
    encode_job,
    encode_recording,
)

counts = pytest.mark.skipif(
    callgrind.missing() is not None, reason=callgrind.missing() or "counting works here"
)

TEXT = b'{"a": [1, 2]}'
GRAMMAR = 'start: "{" /"[a-z]+": \\[[0-9, ]+\\]/ "}"\n'


@pytest.fixture(scope="module")
def recorded(wheel: Engine, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Return one replay of single bytes, by an engine that is a Python extension."""
    builder = JobBuilder()
    lens, data = np.ones(257, np.uint32), np.frombuffer(bytes(range(256)) + b"\xff<end>", np.uint8)
    lens[256] = 6
    number = builder.engine(wheel)
    builder.add(
        MakeTokenizer(number, lens, data, 256, None),
        Compile(0, 0, GRAMMAR, "x"),
        Replay(0, np.frombuffer(TEXT, np.uint8).astype(np.uint32), label="x"),
        Free(0),
    )
    return builder.record(tmp_path_factory.mktemp("recorded"))


@counts
def test_every_call_is_counted_and_the_same_process_counts_the_same(recorded: Recorded) -> None:
    first = callgrind.run(recorded, 1)
    assert [dump.name for dump in first] == ["x compile"] + ["x mask", "x consume"] * len(TEXT)
    assert all(dump.instructions > 100 for dump in first)
    assert callgrind.run(recorded, 1) == first
    # Other seeds lay other hash maps out.
    assert callgrind.run(recorded, 2) != first


@counts
def test_what_the_user_has_set_changes_no_count(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = callgrind.run(recorded, 1)
    (tmp_path / ".valgrindrc").write_text("--tool=none\n")
    for name, value in {
        "RUST_BACKTRACE": "full", "RUST_LIB_BACKTRACE": "1", "HOME": str(tmp_path),
        "VALGRIND_OPTS": "--tool=none", "PYTHONHASHSEED": "7", "LLGBENCH_SEED": "99",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert callgrind.run(recorded, 1) == first
    monkeypatch.delenv("HOME")
    assert callgrind.run(recorded, 1) == first


@counts
def test_a_counted_process_has_no_python_and_no_llama_cpp(
    recorded: Recorded, wheel: Engine, tmp_path: Path
) -> None:
    callgrind.run(recorded, 0, maps=tmp_path / "maps")
    mapped = {line.split()[-1] for line in (tmp_path / "maps").read_text().splitlines()}
    assert str(wheel.path) in mapped
    for path in mapped - {str(wheel.path)}:
        name = Path(path).name
        assert not any(word in name for word in ("llama", "ggml", "python", "_native")), path


@counts
def test_what_llama_cpp_answered_is_answered_again(lab: Lab, wheel: Engine, tmp_path: Path) -> None:
    """On this vocab llguidance forces bytes, and asks how they are tokenized."""
    vocab = lab.vocab("llama-bpe")
    builder = JobBuilder()
    tokenizer = builder.tokenizer(wheel, vocab, get("greedy_tokenize"))
    builder.add(
        Compile(0, tokenizer, 'start: "a forced text, " /[0-9]+/ "."\n', "x"),
        Replay(0, vocab.trace(b"a forced text, 12."), label="x"),
    )
    recorded = builder.record(tmp_path)
    assert sum(recorded.asked) > 0
    dumps = callgrind.run(recorded, 0)
    assert sum(dump.name == "x consume" for dump in dumps) == max(recorded.taken) > 3

    recorded.recording.write_bytes(encode_recording([{}], recorded.taken))
    with pytest.raises(CompareError, match=r'not asked when .* recorded: \d+ bytes, ".*forced'):
        callgrind.run(recorded, 0)


@counts
def test_a_count_of_something_else_is_refused(recorded: Recorded, tmp_path: Path) -> None:
    taken = [n and n - 1 for n in recorded.taken]
    other = replace(recorded, recording=tmp_path / "other")
    other.recording.write_bytes(encode_recording([], taken))
    with pytest.raises(CompareError, match="took 13 tokens under valgrind and 12 without"):
        callgrind.run(other, 0)
    other.recording.write_bytes(recorded.recording.read_bytes()[:-1])
    with pytest.raises(CompareError, match="the recording is cut short"):
        callgrind.run(other, 0)


@counts
def test_an_engine_that_calls_python_is_said_so(tmp_path: Path) -> None:
    _refused(tmp_path, "extern void Py_Initialize(void);", "Py_Initialize();", CompareError,
             "calls Python in the middle of a count")  # fmt: skip


@counts
def test_an_instruction_that_valgrind_does_not_know_is_said_so(tmp_path: Path) -> None:
    """As of an engine built for this processor alone: vpxord zmm0, zmm0, zmm0."""
    code = '__asm__(".byte 0x62, 0xf1, 0x7d, 0x48, 0xef, 0xc0");'
    library = tmp_path / "engine.so"
    _refused(tmp_path, "", code, UnavailableError,
             rf"instruction in {library} \(bytes 62 F1 7D 48\).*target-cpu=native")  # fmt: skip


def _refused(folder: Path, before: str, code: str, kind: type[Exception], message: str) -> None:
    """Load a library whose loading runs some code, under callgrind alone."""
    (folder / "engine.c").write_text(
        f"{before}\n__attribute__((constructor)) static void at_load(void) {{ {code} }}\n"
    )
    library = folder / "engine.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "engine.c"], check=True)
    steps = [OpenEngine(library)]
    (folder / "job").write_bytes(encode_job(steps))
    (folder / "recording").write_bytes(encode_recording([], [0]))
    job = Recorded((library,), folder / "job", folder / "recording", (0,), (0,))
    with pytest.raises(kind, match=message) as raised:
        callgrind.run(job, 0)
    assert "\n" not in str(raised.value)


# ---- what is missing ----


def _tools(folder: Path, *names: str) -> str:
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"there is no {name} here")
        (folder / name).symlink_to(found)
    return str(folder)


@pytest.fixture
def _no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLGBENCH_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("_no_program")
def test_no_valgrind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", _tools(tmp_path / "bin"))
    assert "apt-get install valgrind" in (callgrind.missing() or "")
    with pytest.raises(UnavailableError, match="requires valgrind"):
        callgrind.require()


@pytest.mark.usefixtures("_no_program")
def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", _tools(tmp_path / "bin", "valgrind"))
    assert "requires a C compiler" in (callgrind.missing() or "")


@pytest.mark.usefixtures("_no_program")
def test_no_header(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A compiler that sees all headers of this system but valgrind's."""
    path = _tools(tmp_path / "bin", "valgrind")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    headers = tmp_path / "include"
    headers.mkdir()
    for entry in Path("/usr/include").iterdir():
        if entry.name != "valgrind":
            (headers / entry.name).symlink_to(entry)

    def asked(question: str) -> str:
        return subprocess.run(
            [compiler, question], capture_output=True, text=True, check=True
        ).stdout.strip()

    own, machine = asked("-print-file-name=include"), asked("-print-multiarch")
    folders = [own, *([f"{headers}/{machine}"] if machine else []), str(headers)]
    wrapper = Path(path) / "cc"
    options = " ".join(f"-isystem {folder}" for folder in folders)
    wrapper.write_text(
        f'#!/bin/sh\nPATH={os.environ["PATH"]}\nexec {compiler} -nostdinc {options} "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", path)
    assert "requires valgrind's header" in (callgrind.missing() or "")
    assert not list((tmp_path / "cache" / "counting").iterdir())


@counts
@pytest.mark.usefixtures("_no_program")
def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file\n")
    assert "cannot write" in (callgrind.missing() or "")
