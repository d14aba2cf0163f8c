"""Masks of two engines step by step: what the counts come to, and what is kept of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from llgbench import paths
from llgbench.commands.masks import masks_command
from llgbench.compare import masks
from llgbench.compare.masks import MASKBENCH, Masks, Refused, TextMasks
from llgbench.errors import RecordError

ONE = TextMasks("v", "a", "a", "long", (100, 200, 100, 400), (50, 200, 150, 200))
TWO = TextMasks("v", MASKBENCH, "f1", "valid-0", (100, 100), (100, 100))
THREE = TextMasks("v", MASKBENCH, "f2", "valid-0", (100, 100), (90, 112))
FOUND = Masks("old", "new", "greedy_tokenize", 1, verified=1234, texts=(ONE, TWO, THREE))


def test_a_row_per_vocabulary_and_group() -> None:
    one, files = masks.rows(FOUND)
    assert one == {
        "vocab": "v", "texts": "a", "steps": 4, "changed": "75.0%", "all masks": "0.750",
        "median step": "0.750", "best step": "0.500", "worst step": "1.500",
        "worst text": "0.750", "worst so far": "1.000",
    }  # fmt: skip
    assert files["texts"] == "MaskBench, 2 files"
    assert (files["steps"], files["changed"]) == (4, "50.0%")
    assert files["worst text"] == files["worst so far"] == "1.010"


def test_a_text_is_slower_by_all_its_masks() -> None:
    assert FOUND.slower == [THREE]
    assert FOUND.failed
    assert not replace(FOUND, texts=(ONE, TWO)).failed
    assert replace(FOUND, texts=(TWO,), differences=("masks differ: …",)).failed


def test_notes_say_what_is_equal_slower_and_missing() -> None:
    found = replace(
        FOUND, unavailable={"w": "not fetched"},
        refused=(Refused("v", "b", "b", "no token"), Refused("v", MASKBENCH, "f3", "not")),
    )  # fmt: skip
    text = "\n".join(masks.notes(found))
    assert "All 1,234 masks of all texts are equal" in text
    assert "The worst step is step 2 of a on v, 100 → 150 instructions" in text
    assert "Slower: f2 on v, 1.010." in text
    assert "Not counted: w: not fetched" in text
    assert "Not counted: b on v: no token" in text
    assert "Not counted: 1 of 3 MaskBench files on v, such as f3: not" in text
    different = masks.notes(replace(FOUND, differences=("masks differ: here",)))
    assert "masks differ: here" in different
    assert not any("equal" in line for line in different)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "masks.json"
    masks.write(FOUND, path)
    assert masks.read(path) == FOUND


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"schema": 99},
        {"texts": 3},
        {"texts": [{**ONE.__dict__, "head": [1]}]},
        {"texts": [{**ONE.__dict__, "base": [1, 2, 0, 3]}]},
    ],
)
def test_damaged_counts_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "masks.json"
    masks.write(FOUND, path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(RecordError, match=r"masks\.json"):
        masks.read(path)


def test_the_table_in_the_docs_is_of_the_stored_counts() -> None:
    stored = paths.root() / "results/first-byte.json"
    done = CliRunner().invoke(masks_command, ["--from", str(stored), "--markdown"])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() in (paths.root() / "docs/results.md").read_text()


@pytest.mark.parametrize(
    "arguments",
    [[], ["stock"], ["stock", "first-byte", "--from", "x"], ["--from", "x", "--seeds", "3"]],
)
def test_what_does_not_go_together_is_refused(arguments: list[str]) -> None:
    done = CliRunner().invoke(masks_command, arguments)
    assert done.exit_code != 0
    assert "--from" in str(done.exception)
