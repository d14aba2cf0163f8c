from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_records import PROVENANCE, entry, record, unavailable

from llgbench import records
from llgbench.errors import RecordError
from llgbench.records import Arrays, Entry, Writer, by_round, read

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
    back = records.unpack(json.loads(json.dumps(records.pack(replays))))
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
        (b"", "line 1 is no JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[1]\n", "no JSON object"),
        (b'{"format": "other"}\n', "no llgbench record"),
        (b'{"format": "llgbench", "schema": 1}\n', "no provenance"),
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
    record(tmp_path, complete=False)
    assert records.latest(tmp_path) == first.path


def test_fingerprint_is_of_the_content() -> None:
    assert records.fingerprint({"a": 1, "b": 2}) == records.fingerprint({"b": 2, "a": 1})
    assert records.fingerprint({"a": 1}) != records.fingerprint({"a": 2})


def test_rounds_hold_every_text_once() -> None:
    one = entry(texts=2, mask=[[1], [2], [3], [4], [5], [6]])
    rounds = by_round(one, one.samples["cold_mask"])
    assert [[int(a[0]) for a in r] for r in rounds] == [[1, 2], [3, 4], [5, 6]]
    # Two cached replays in three rounds: no round has its own.
    assert len(by_round(one, one.samples["cold_mask"][:2])) == 1
