from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from made_records import entry, record, unavailable

from llgbench.errors import RecordError
from llgbench.report import document, families, plots, view

PNG = b"\x89PNG\r\n"
MANY = np.arange(1, 2001, dtype=np.uint64) * 1000


def test_pictures_of_every_kind_of_line(tmp_path: Path) -> None:
    made = record(
        tmp_path / "records",
        entry(mask=[MANY], label="wrong"),
        entry("token_to_piece", mask=[MANY]),
        entry("greedy_tokenize", mask=[[]], label="wrong"),  # fails before its first mask
        unavailable("greedy_lexeme_fallback"),
        entry(vocab="llama-spm", mask=[[1000] * 5]),  # too few for any percentile
        *(entry(case=f"checkpoint@{n}", value=n, mask=[[n] * 20]) for n in (16, 64, 65, 128)),
    )
    found = plots.pictures([made, record(tmp_path / "records", entry())], tmp_path)
    assert list(found) == ["tails", "checkpoints", "tails-2"]
    for path in found.values():
        assert path.read_bytes().startswith(PNG)
    assert not list(tmp_path.glob("*.part"))


def test_no_family_no_picture_of_checkpoints(tmp_path: Path) -> None:
    made = record(tmp_path / "records", entry())
    assert plots.checkpoints(made, tmp_path / "x.png") is None
    assert list(plots.pictures([made], tmp_path)) == ["tails"]


def test_cases_in_no_set_have_tails_too(tmp_path: Path) -> None:
    made = record(tmp_path / "records", entry(case="listed", tags=["lexer"]))
    assert plots.tails(made, tmp_path / "x.png") == tmp_path / "x.png"


def test_nothing_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="nothing was measured"):
        plots.tails(record(tmp_path / "records"), tmp_path / "x.png")


def test_a_picture_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    made = record(tmp_path / "records", entry())
    with pytest.raises(RecordError, match="cannot write"):
        plots.tails(made, made.path / "x.png")


def test_labels_by_n_do_not_touch() -> None:
    assert plots._apart([16, 64, 65, 128]) == [16, 64, 128]


def test_nines_are_evenly_spaced() -> None:
    np.testing.assert_allclose(plots._nines([0.0, 0.9, 0.99, 0.999]), [0, 1, 2, 3], atol=1e-9)
    ranks = plots._nine_spaced(1000)
    assert ranks[0] == 0
    assert ranks[-1] == 999
    assert (np.diff(ranks) >= 0).all()


NAMES = ("$a_{b$", "a|b<c>*d`e", "模型", os.fsdecode(b"caf\xe9"), "[/b]\nx", "/x@y/z")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_any_name_can_be_drawn_and_stands_in_its_cell(tmp_path: Path, name: str) -> None:
    made = record(
        tmp_path / "records",
        entry(case=name, vocab=name, engine=name),
        entry(case=f"{name}@16", vocab=name, engine=name, value=16, mask=[[900] * 20]),
    )
    text = document.write([made], tmp_path).read_text()
    assert (tmp_path / "tails.png").stat().st_size > 1000
    rows = [line for line in text.splitlines() if line.startswith("| ") and "baseline on" in line]
    assert rows
    assert not any("<" in line.replace("\\<", "") for line in rows)
    assert families.families(view.View(made), name) == {name: [(16, f"{name}@16")]}
