"""The journal: what a killed run has found is there again, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llgbench.errors import RecordError
from llgbench.inputs.configuration import Configuration
from llgbench.measure import messages
from llgbench.measure.checks import Judgement
from llgbench.measure.journal import Journal
from llgbench.measure.messages import Header, Judged, Kept, Measured
from llgbench.measure.replay import End
from llgbench.measure.rounds import Samples, Unit

ONE, TWO = (Configuration("c", "v", variant) for variant in ("one", "two"))
HEADER = Header("group", [(ONE, "1"), (TWO, "2")])
JUDGEMENT = Judgement(
    text="t", steps=3, end=End.WHOLE, accepted=True, reference_accepted=True, reject_at=None,
    forbidden=0, missing=0, narrowed_steps=0, first_step=None, first_token=None, inside_ns=5,
)  # fmt: skip


def samples(start: int) -> Samples:
    return Samples(
        compile_ns=[start], first_mask_ns=[], cold_mask_ns=[np.arange(start, dtype=np.uint64)],
        warm_mask_ns=[np.arange(2, dtype=np.uint64), np.empty(0, np.uint64)], inside_ns=start,
    )  # fmt: skip


KEPT: list[Kept] = [
    Judged(ONE, 0, JUDGEMENT),
    Judged(TWO, 0, JUDGEMENT),
    Measured(Unit(0, 0), [(ONE, messages.pack(samples(3))), (TWO, messages.pack(samples(4)))]),
]


def filled(path: Path) -> Journal:
    journal = Journal(path)
    assert journal.begin(HEADER) == []
    for message in KEPT:
        journal.add(message)
    return journal


def test_a_group_is_continued(tmp_path: Path) -> None:
    filled(tmp_path / "journal")
    assert Journal(tmp_path / "journal").begin(HEADER) == KEPT


def test_another_group_begins_anew(tmp_path: Path) -> None:
    filled(tmp_path / "journal")
    assert Journal(tmp_path / "journal").begin(Header("other", HEADER.inputs)) == []
    assert Journal(tmp_path / "journal").begin(HEADER) == []


def test_what_has_other_inputs_is_not_kept(tmp_path: Path) -> None:
    filled(tmp_path / "journal")
    found = Journal(tmp_path / "journal").begin(Header("group", [(ONE, "1"), (TWO, "changed")]))
    assert [m.configuration for m in found if isinstance(m, Judged)] == [ONE]
    (measured,) = (m for m in found if isinstance(m, Measured))
    assert [c for c, _ in measured.parts] == [ONE]


@settings(max_examples=40)
@given(st.data())
def test_a_journal_cut_anywhere_gives_whole_messages(data: st.DataObject) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        filled(path)
        content = path.read_bytes()
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        found = Journal(path).begin(HEADER)
        assert found == KEPT[: len(found)]
        assert Journal(path).begin(HEADER) == found  # the torn end is gone


@settings(max_examples=60)
@given(st.integers(0, 2000), st.integers(0, 255))
def test_a_damaged_journal_is_no_error(at: int, byte: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        filled(path)
        content = bytearray(path.read_bytes())
        content[at % len(content)] = byte
        path.write_bytes(content)
        Journal(path).begin(HEADER)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot write"):
        Journal(tmp_path / "nowhere" / "journal").begin(HEADER)


@given(st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=4), max_size=4))
def test_samples_cross_unchanged(arrays: list[list[int]]) -> None:
    given_samples = Samples(
        compile_ns=[len(a) for a in arrays], inside_ns=7,
        cold_mask_ns=[np.array(a, np.uint64) for a in arrays],
    )  # fmt: skip
    found = messages.unpack(messages.pack(given_samples))
    assert found.compile_ns == given_samples.compile_ns
    assert found.inside_ns == 7
    assert found.warm_mask_ns == []
    assert [a.tolist() for a in found.cold_mask_ns] == arrays
