from __future__ import annotations

import json
import os
import resource
import tempfile
import tracemalloc
import zlib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import FUZZ
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_records import PROVENANCE, entry, record, unavailable

from llgbench.errors import LlgbenchError, RecordError
from llgbench.records import packed
from llgbench.records import record as records
from llgbench.records.entry import Entry
from llgbench.records.packed import Arrays
from llgbench.records.record import Writer, read
from llgbench.records.times import by_round

THREE = (entry("baseline"), entry("token_to_piece"), unavailable("greedy_lexeme_fallback"))


def same(one: Entry, other: Entry) -> bool:
    """Whether two entries hold the same; arrays have no single truth value."""
    assert {name: list(map(len, a)) for name, a in one.samples.items()} == {
        name: list(map(len, a)) for name, a in other.samples.items()
    }
    for name, mine in one.samples.items():
        for a, b in zip(mine, other.samples[name], strict=True):
            np.testing.assert_array_equal(a, b)
    return (one.configuration, one.verdict, one.facts, one.engine, one.unavailable) == (
        other.configuration, other.verdict, other.facts, other.engine, other.unavailable,
    )  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(arrays(np.uint64, st.integers(0, 8), elements=st.integers(0, 2**64 - 1)), max_size=5)
)
def test_unpack_gives_back_what_pack_took(replays: Arrays) -> None:
    back = packed.unpack(json.loads(json.dumps(packed.pack(replays))))
    assert [a.tolist() for a in back] == [a.tolist() for a in replays]
    assert all(a.dtype == np.uint64 for a in back)


def test_record_reads_back_whole(tmp_path: Path) -> None:
    found = record(tmp_path, *THREE)
    assert found.complete
    assert not found.torn
    assert found.provenance == PROVENANCE
    assert all(same(a, b) for a, b in zip(found.entries, THREE, strict=True))


def test_an_ended_run_is_not_gone_on_with(tmp_path: Path) -> None:
    first, second = record(tmp_path, *THREE), record(tmp_path, *THREE)
    assert first.path != second.path
    assert records.latest(tmp_path) == second.path
    assert [r.path for r in records.read_all(tmp_path)] == [first.path, second.path]


def test_another_mark_is_another_record(tmp_path: Path) -> None:
    first = record(tmp_path, THREE[0], complete=False, mark="one")
    with Writer(tmp_path, "two", PROVENANCE) as writer:
        assert not writer.entries
    assert writer.path != first.path


@settings(deadline=None)
@given(st.data())
def test_a_run_killed_anywhere_keeps_whole_lines_and_is_gone_on_with(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = record(folder, *THREE, complete=False).path
        content = path.read_bytes()
        header = content.index(b"\n") + 1
        cut = data.draw(st.integers(header, len(content)))
        path.write_bytes(content[:cut])
        whole = content[:cut].count(b"\n") - 1

        torn = read(path)
        assert not torn.complete
        assert torn.torn == (content[cut - 1 : cut] != b"\n")
        assert len(torn.entries) == whole

        with Writer(folder, "mark", PROVENANCE) as writer:
            assert writer.path == path
            assert [e.configuration for e in writer.entries] == [
                e.configuration for e in THREE[:whole]
            ]
            for one in THREE[whole:]:
                writer.add(one)
            writer.end()
        found = read(path)
        assert found.complete
        assert all(same(a, b) for a, b in zip(found.entries, THREE, strict=True))


def test_a_run_killed_before_its_first_line_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "20260101T000000-mark.jsonl").write_bytes(b'{"format":"llgb')
    assert record(tmp_path, *THREE).complete


def test_what_is_measured_again_replaces_what_was(tmp_path: Path) -> None:
    first, second, third = THREE
    path = record(tmp_path, first, second, third, replace(first, unavailable="x")).path
    found = read(path)
    assert [e.configuration for e in found.entries] == [
        e.configuration for e in (second, third, first)
    ]
    assert found.entries[-1].unavailable == "x"


def test_a_discarded_record_leaves_no_file_and_no_empty_folder(tmp_path: Path) -> None:
    with Writer(tmp_path / "results" / "records", "mark", PROVENANCE) as writer:
        writer.add(THREE[0])
        writer.discard()
    assert not (tmp_path / "results").exists()
    with Writer(tmp_path / "results" / "records", "mark", PROVENANCE) as kept:
        kept.add(THREE[0])
    with Writer(tmp_path / "results" / "records", "other", PROVENANCE) as writer:
        writer.discard()
    assert list((tmp_path / "results" / "records").iterdir()) == [kept.path]


def test_two_runs_never_write_one_record(tmp_path: Path) -> None:
    with Writer(tmp_path, "mark", PROVENANCE) as first:
        first.add(THREE[0])
        with pytest.raises(RecordError, match="under way"):
            Writer(tmp_path, "mark", PROVENANCE)
        first.add(THREE[1])
    assert len(read(first.path).entries) == 2


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = record(tmp_path, *THREE).path
    header, rest = path.read_text().split("\n", 1)
    newer = json.dumps({**json.loads(header), "schema": records.SCHEMA + 1})
    path.write_text(f"{newer}\n{rest}")
    with pytest.raises(RecordError, match=r"schema 2, this llgbench reads 1"):
        read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"nothing\n", "line 1: not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[1]\n", "not a JSON object"),
        (b'{"format": "other"}\n', "no llgbench record"),
        (b'{"format": "llgbench", "schema": 1}\n', "`provenance`"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=message):
        read(path)


@pytest.mark.parametrize("damage", ['{"configuration": ["a"]}', "{}", "not json", '{"conf'])
def test_damage_in_the_middle_is_refused(tmp_path: Path, damage: str) -> None:
    path = record(tmp_path, *THREE).path
    header, rest = path.read_text().split("\n", 1)
    path.write_text(f"{header}\n{damage}\n{rest}")
    with pytest.raises(RecordError, match="line 2"):
        read(path)


def test_altered_samples_are_refused(tmp_path: Path) -> None:
    path = record(tmp_path, *THREE).path
    path.write_text(path.read_text().replace('"lengths":[20]', '"lengths":[21]', 1))
    with pytest.raises(RecordError, match="damaged"):
        read(path)


def test_a_missing_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        read(tmp_path / "x.jsonl")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot write results"):
        Writer(tmp_path / "file" / "records", "mark", PROVENANCE)


def test_no_records_no_latest(tmp_path: Path) -> None:
    assert records.latest(tmp_path) is None
    assert list(records.read_all(tmp_path)) == []


def test_a_run_that_has_just_begun_is_not_the_latest(tmp_path: Path) -> None:
    first = record(tmp_path, *THREE)
    header = first.path.read_text().split("\n")[0]
    (tmp_path / "29990101T000000-mark.jsonl").write_text(f"{header}\n")
    (tmp_path / "29990101T000001-mark.jsonl").write_text("")
    assert records.latest(tmp_path) == first.path
    assert len(list(records.read_all(tmp_path))) == 2


def test_a_run_that_stored_nothing_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "records"
    with Writer(folder, "mark", PROVENANCE) as writer:
        assert writer.path.is_file()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with Writer(tmp_path / "there", "mark", PROVENANCE):
        pass
    assert list(tmp_path.iterdir()) == [tmp_path / "there"]


def test_runs_that_begin_in_one_second_have_a_record_each(tmp_path: Path) -> None:
    paths = {record(tmp_path, *THREE).path for _ in range(3)}
    assert len(paths) == 3
    assert len(list(tmp_path.iterdir())) == 3


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Let every write behind that byte of a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@settings(deadline=None)
@given(st.data())
def test_a_disk_that_is_full_at_any_byte_costs_no_whole_line(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        whole = record(Path(name) / "whole", *THREE).path.read_bytes()
        folder = Path(name) / "made" / "records"
        size = data.draw(st.integers(0, len(whole) - 1))
        with no_file_beyond(size), pytest.raises(RecordError, match="File too large"):
            record(folder, *THREE)
        kept = whole[:size].rfind(b"\n") + 1
        if whole[:kept].count(b"\n") < 2:
            assert not folder.parent.exists()
            return
        [path] = folder.iterdir()
        assert path.read_bytes().count(b"\n") == whole[:kept].count(b"\n")
        found = read(path)
        assert not found.torn
        assert record(folder, *THREE[len(found.entries) :]).path == path
        assert len(read(path).entries) == len(THREE)


def test_fingerprint_is_of_the_content() -> None:
    assert records.fingerprint({"a": 1, "b": 2}) == records.fingerprint({"b": 2, "a": 1})
    assert records.fingerprint({"a": 1}) != records.fingerprint({"a": 2})


def test_rounds_hold_every_text_once() -> None:
    one = entry(texts=2, mask=[[1], [2], [3], [4], [5], [6]])
    rounds = by_round(one, one.samples["cold_mask"])
    assert [[int(a[0]) for a in r] for r in rounds] == [[1, 2], [3, 4], [5, 6]]
    # Two cached replays in three rounds: no round has its own.
    assert len(by_round(one, one.samples["cold_mask"][:2])) == 1


# ---- damage --------------------------------------------------------------------------------------


def altered(folder: Path, line: int, change: Any) -> Path:
    """Write a record and change one of its lines, given and returned as plain data."""
    path = record(folder, *THREE).path
    lines = path.read_text().splitlines()
    content = json.loads(lines[line])
    lines[line] = json.dumps(change(content) or content)
    path.write_text("".join(f"{one}\n" for one in lines))
    return path


@pytest.mark.parametrize(
    ("line", "change", "words"),
    [
        (1, lambda c: c.update(facts=None), r"\$\.facts"),
        (1, lambda c: c.update(verdict={}), "verdict has no label"),
        (1, lambda c: c.update(verdict={"label": 1, "reason": ""}), r"\$\.verdict\.label"),
        (1, lambda c: c.update(samples=[]), r"\$\.samples"),
        (1, lambda c: c["samples"].__delitem__("compile"), "no samples of compile"),
        (1, lambda c: c["samples"].__delitem__("cold_consume"), "no samples of cold_consume"),
        (1, lambda c: c["samples"]["compile"].update(lengths=[-1, 2]), r"lengths\[0\]"),
        (1, lambda c: c["samples"]["compile"].update(lengths=[10**30]), "samples"),
        (1, lambda c: c["samples"]["compile"].update(data="µ"), "samples.compile"),
        (1, lambda c: c["facts"].update(tags="json"), r"\$\.facts\.tags"),
        (1, lambda c: c["facts"].update(texts=[1]), r"\$\.facts\.texts"),
        (1, lambda c: c["facts"].update(value=float("nan")), "NaN is not a finite number"),
        (1, lambda c: c.update(configuration=["a"]), r"\$\.configuration"),
        (1, lambda c: c["configuration"].__setitem__(0, ""), r"\$\.configuration\[0\]"),
        (1, lambda c: {"end": "now"}, "behind the end"),
        (
            2,
            lambda c: c.update(configuration=["json-a", "llama-bpe", "baseline"]),
            "is there already",
        ),
        (3, lambda c: c.update(unavailable=None), r"\$\.unavailable"),
        (0, lambda c: c["provenance"].update(machine="big"), r"\$\.provenance\.machine"),
        (4, lambda c: c.update(lines=9), "lines are left of 9"),
    ],
)
def test_damage_is_named_with_line_and_place(
    tmp_path: Path, line: int, change: Any, words: str
) -> None:
    with pytest.raises(RecordError, match=words) as caught:
        read(altered(tmp_path, line, change))
    assert "\n" not in str(caught.value)


def test_samples_of_other_replays_are_refused(tmp_path: Path) -> None:
    one = entry(mask=[[1, 2], [3, 4]], consume=[[1, 2], [3]])
    assert len(record(tmp_path / "right", one).entries) == 1
    for number, other in enumerate(
        (
            entry(mask=[[1, 2]], consume=[[1, 2, 3]]),
            entry(mask=[[1], [2]], consume=[[1]], compile_ns=[1, 2]),
            entry(mask=[[1], [2]], compile_ns=[1]),
        )
    ):
        with pytest.raises(RecordError, match="line 2 is damaged"):
            record(tmp_path / str(number), other)


def test_json_without_end_is_refused(tmp_path: Path) -> None:
    path = record(tmp_path, *THREE).path
    path.write_text(path.read_text() + "[" * 200_000 + "\n")
    with pytest.raises(RecordError, match="nested too deeply"):
        read(path)


@pytest.mark.parametrize("claimed", [10, 1 << 16, 1 << 27, 1 << 40])
def test_no_more_is_unpacked_than_is_said_to_be_there(tmp_path: Path, claimed: int) -> None:
    deflate = zlib.compressobj(9)
    data = b"".join(deflate.compress(bytes(1 << 20)) for _ in range(128)) + deflate.flush()
    packed = {"lengths": [claimed], "data": b64encode(data).decode()}
    path = altered(tmp_path, 1, lambda c: c["samples"].update(cold_mask=packed))
    tracemalloc.start()
    try:
        with pytest.raises(RecordError, match="cold_mask"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("make", ["fifo", "device", "folder"])
def test_only_regular_files_are_records(tmp_path: Path, make: str) -> None:
    path = tmp_path / "x.jsonl"
    match make:
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
    for reading in (
        read,
        lambda p: records.latest(p.parent),
        lambda p: list(records.read_all(p.parent)),
    ):
        with pytest.raises(RecordError, match="not a regular file"):
            reading(path)


def test_names_that_are_no_utf8_come_back(tmp_path: Path) -> None:
    name = os.fsdecode(b"./caf\xe9.gguf")
    found = record(tmp_path, entry(vocab=name))
    assert found.entries[0].configuration.vocab == name


# ---- any damage ----------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.just("1e999") | st.just(2**63) | st.just(-1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)  # fmt: skip


def places(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield every place in plain data."""
    if at:
        yield at
    inner = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in inner:
        if isinstance(value, dict | list):
            yield from places(value, (*at, key))
        else:
            yield (*at, key)


def mutated(data: st.DataObject, path: Path) -> None:
    """Damage a record: bytes, lines, or a value in the midst of a line."""
    content = path.read_bytes()
    kind = data.draw(st.sampled_from(["bytes", "lines", "value", "value", "value"]))
    if kind == "bytes":
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 20)))
        path.write_bytes(content[:start] + data.draw(st.binary(max_size=20)) + content[end:])
        return
    lines = content.decode().splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    if kind == "lines":
        chosen = data.draw(st.lists(st.integers(0, len(lines) - 1), max_size=8))
        lines = [lines[i] for i in chosen]
    else:
        line = json.loads(lines[at])
        *outer, last = data.draw(st.sampled_from(sorted(places(line), key=str)))
        inner = line
        for key in outer:
            inner = inner[key]
        if data.draw(st.booleans()):
            inner[last] = data.draw(JSON)
        else:
            del inner[last]
        lines[at] = json.dumps(line)
    path.write_text("".join(f"{one}\n" for one in lines))


@pytest.mark.fuzz
@settings(deadline=None, max_examples=FUZZ)
@given(st.data())
def test_a_damaged_record_ends_in_a_report_or_one_line(data: st.DataObject) -> None:
    from llgbench.report import document

    with tempfile.TemporaryDirectory() as name:
        path = record(
            Path(name), entry("baseline"), entry("token_to_piece", warm_mask=[[5] * 30]),
            entry(case="checkpoint@16", value=16, mask=[[900] * 20] * 2, texts=2),
            unavailable("greedy_lexeme_fallback"),
        ).path  # fmt: skip
        mutated(data, path)
        said = ""
        try:
            found = read(path)
            assert document.markdown([found])
            json.dumps(document.tables([found]), allow_nan=False)
        except LlgbenchError as error:
            said = str(error)
        assert "\n" not in said
