"""Calls in a process of their own: results, errors, and the ends that no process survives."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from llgbench import isolated
from llgbench.errors import ProcessError, UnknownNameError, VocabError
from llgbench.isolated import Limits


@dataclass(frozen=True)
class Answer:
    path: Path
    numbers: tuple[int, ...]
    process: int


def answer(path: Path, count: int) -> Answer:
    print("a library prints this")
    return Answer(path, tuple(range(count)), os.getpid())


def refuse(name: str) -> None:
    raise UnknownNameError("vocab", name, ["llama-spm"])


def die(words: str) -> None:
    os.write(2, f"{words}\n".encode())
    os.abort()


def exhaust() -> int:
    return len(bytearray(1 << 50))


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)


def test_a_call_returns_what_the_function_does(tmp_path: Path) -> None:
    found = isolated.call(answer, tmp_path, 3)
    assert found == Answer(tmp_path, (0, 1, 2), found.process)
    assert found.process != os.getpid()


def test_an_error_keeps_its_class_and_its_message() -> None:
    with pytest.raises(UnknownNameError, match="did you mean llama-spm"):
        isolated.call(refuse, "llama-smp")


def test_the_last_words_are_raised() -> None:
    with pytest.raises(ProcessError, match=r"^it is full \(killed by SIGABRT\)$"):
        isolated.call(die, "it is full")


def test_memory_is_limited() -> None:
    with pytest.raises(ProcessError, match="MemoryError"):
        isolated.call(exhaust)


def test_what_lies_in_the_working_directory_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("random.py", "copy.so", "numpy.py", "llgbench.py"):
        (tmp_path / name).write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    assert isolated.call(answer, tmp_path, 1).numbers == (0,)


def test_limits_are_kept() -> None:
    with pytest.raises(ProcessError, match=r"^ended after its time limit of 0\.5 s$"):
        isolated.call_within(Limits(0.5, 4000), hang)
    with pytest.raises(ProcessError, match="MemoryError"):
        isolated.call_within(Limits(60, 400), hold, 500)
    assert isolated.call_within(Limits(60, 1200), hold, 500) == 500 << 20


def hang() -> None:
    time.sleep(600)


def hold(mib: int) -> int:
    return len(bytearray(mib << 20))


def test_a_foreign_file_is_opened_there(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"nothing")
    with pytest.raises(VocabError, match=r"x\.gguf"):
        isolated.call(tokens, str(path))


def tokens(name: str) -> int:
    from llgbench.llama.vocab import open_vocab

    with open_vocab(name) as vocab:
        return vocab.n_tokens


@pytest.mark.usefixtures("_vocabs_here")
def test_a_vocab_is_opened_there() -> None:
    assert isolated.call(tokens, "llama-spm") == 32000
