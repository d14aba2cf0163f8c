"""Files: foreign ones end in a value or one line; ours are whole or not there."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llgbench import files
from llgbench.errors import CaseError, EngineError, FileError


@dataclass(frozen=True)
class Point:
    x: int
    name: str = ""


def test_a_file_is_read_into_its_type(tmp_path: Path) -> None:
    path = tmp_path / "point.json"
    files.write(path, '{"x": 3, "name": "a"}')
    assert files.read_json(path, Point) == Point(3, "a")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"x": "3"}', ["`int`", "`str`", "$.x"]),
        (b"{", ["truncated"]),
        (b"\xff", []),
        (b'{"x": NaN}', []),
        (b'{"x": 1e999}', []),
        (b"[" * 100_000, []),
        (b"", []),
    ],
)
def test_what_was_expected_is_said_with_file_and_place(
    tmp_path: Path, content: bytes, words: list[str]
) -> None:
    path = tmp_path / "point.json"
    path.write_bytes(content)
    with pytest.raises(CaseError) as caught:
        files.read_json(path, Point, error=CaseError)
    for word in (str(path), *words):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", ["fifo", "folder", "missing", "device", "nul"])
def test_only_regular_files_are_opened(tmp_path: Path, make: str) -> None:
    path = tmp_path / make
    match make:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path = Path("/dev/zero")
        case "nul":
            path = tmp_path / "a\0b"
    for reader in (files.read, files.sha256):
        with pytest.raises(FileError, match=make if make not in ("device", "nul") else "."):
            reader(path)


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 11)
    assert files.read(path, limit=11) == b"x" * 11
    with pytest.raises(FileError, match="larger than"):
        files.read(path, limit=10)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    files.write(path, "old")
    blocked = tmp_path / "kept" / "below-a-file"
    with pytest.raises(FileError, match="cannot write"):
        files.write(blocked, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


def test_a_write_that_a_full_disk_refuses_leaves_no_folder(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(FileError, match=r"cannot write .*: File too large"):
            files.write(tmp_path / "new" / "newer" / "file", "x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, pathlib, signal, sys
from llgbench import files
os.link = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
files.write(pathlib.Path(sys.argv[1]), "new" * 1000)
"""


def test_a_writer_that_is_killed_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    """Here all is written, and the name is still to be given."""
    for old in ([], ["kept"]):
        for name in old:
            files.write(tmp_path / name, "old")
        command = [sys.executable, "-c", KILLED, str(tmp_path / "kept")]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(n, "old") for n in old]


def test_where_no_file_is_without_a_name_one_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # answers EISDIR, as an old file system
    for content in ("old", "new"):
        files.write(tmp_path / "file", content)
        assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("file", content)]


def test_a_written_file_has_the_mode_of_any_other(tmp_path: Path) -> None:
    path, other = tmp_path / "ours", tmp_path / "theirs"
    files.write(path, "x")
    other.write_text("x")
    assert path.stat().st_mode == other.stat().st_mode


def test_toml_is_read_into_a_type(tmp_path: Path) -> None:
    path = tmp_path / "point.toml"
    files.write(path, "x = 1\n")
    assert files.read_toml(path, Point) == Point(1)
    files.write(path, f"x = {'9' * 5000}\n")
    with pytest.raises(FileError, match=str(path)):
        files.read_toml(path, Point)
    files.write(path, "x = 1979-05-27\n")
    with pytest.raises(FileError, match=r"\$\.x"):
        files.read_toml(path, Point)


def test_asv_json_may_hold_nan(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    files.write(path, "[NaN, 1.5]")
    values = files.read_loose_json(path, list[float])
    assert values[0] != values[0]
    assert values[1] == 1.5


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_one_line(data: bytes) -> None:
    said = ""
    try:
        files.from_json(data, dict[str, Point], "somewhere")
    except FileError as error:
        said = str(error)
    assert not said or said.startswith("somewhere: ")
    assert "\n" not in said


def test_one_line_cuts_and_joins() -> None:
    assert files.one_line("a\n  b") == "a b"
    assert files.one_line("x" * 400, 10) == "x" * 9 + "…"


def test_a_lock_is_waited_for_and_its_holder_named(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    said: list[str] = []
    order: list[str] = []
    waits = threading.Event()

    def report(line: str) -> None:
        said.append(line)
        waits.set()

    def second() -> None:
        with files.locked(path, "comes second", report):
            order.append("second")

    thread = threading.Thread(target=second)
    with files.locked(path, "builds an engine", said.append):
        assert said == []
        thread.start()
        assert waits.wait(30)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]
    assert said == [f"waiting for process {os.getpid()}, which builds an engine"]


def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(CaseError, match="cannot write"),
        files.locked(tmp_path / "file" / "lock", error=CaseError),
    ):
        raise AssertionError("not reached")


def test_folders_at_once_are_each_ones_own(tmp_path: Path) -> None:
    with (
        files.folder(tmp_path / "a" / "x", numbered=True) as one,
        files.folder(tmp_path / "a" / "x", numbered=True) as two,
    ):
        assert {one.name, two.name} == {"x", "x-2"}
        (two / "kept").write_text("")
    assert not one.exists()
    assert (two / "kept").is_file()


def test_a_folder_into_which_nothing_came_goes_with_what_was_made_for_it(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        with files.folder(path):
            assert path.is_dir()
            # An OSError of another thing than the folder.
            raise EngineError("x.so: no such library")

    with pytest.raises(EngineError, match=r"x\.so"):
        fail(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with pytest.raises(EngineError, match=r"x\.so"):
        fail(tmp_path / "there")
    assert (tmp_path / "there").is_dir()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CaseError, match="cannot write"), files.folder(path, error=CaseError):
            pass
