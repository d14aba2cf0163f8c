"""comparison.json: everything comes back, old files are read, damaged ones are one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_comparison import compared, everything

from llgbench.compare import comparison, inference, table
from llgbench.compare.comparison import Comparison
from llgbench.errors import InputError, RecordError
from llgbench.report import pull_request


def plain(found: Comparison) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(found.to_json()))
    return data


def test_what_is_written_is_read(tmp_path: Path) -> None:
    found = everything()
    comparison.write(found, tmp_path / "comparison.json")
    again = comparison.read(tmp_path / "comparison.json")
    assert again == found
    assert pull_request.section(again) == pull_request.section(found)


def test_the_words_of_the_file_are_those_of_the_comparison() -> None:
    data = plain(everything())
    assert data["verdict"] == "slower"
    assert data["line"].startswith("slower: of ")
    assert data["self"] is False


def test_a_file_of_an_earlier_version_is_read_and_says_what_it_lacks() -> None:
    data = plain(everything()) | {"schema": 1}
    for name in ("pooled", "costliest", "machine", "rate"):
        del data[name]
    for row in data["rows"]:
        del row["ratios"]
    found = Comparison.from_json(data, "old.json")
    assert found.slower
    text = pull_request.section(found)
    assert "costliest steps are not stored" in text
    assert "No pooled times are stored" in text
    assert "the machine is not stored" in text
    with pytest.raises(InputError, match="without the ratios of its processes; compare again"):
        table.judged_again(found, 0.5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "llgbench"}, "not a comparison"),
        ({"schema": 4}, "schema 4, this llgbench reads up to 3"),
        ({"schema": None}, "schema None"),
        ({"rows": [{}]}, "missing required field"),
        ({"base": {}}, "missing required field"),
        ({"counted": "x"}, r"Expected `int`.*\$\.counted"),
    ],
)
def test_another_file_is_refused_in_one_line(change: dict[str, Any], said: str) -> None:
    with pytest.raises(RecordError, match=said) as caught:
        Comparison.from_json(plain(compared()) | change, "x.json")
    assert str(caught.value).startswith("x.json")
    assert "\n" not in str(caught.value)


def test_a_ratio_that_none_can_have_is_refused() -> None:
    for value in (0.0, -1.0, float("inf"), float("nan")):
        data = plain(compared())
        data["rows"][0]["ratios"][0] = value
        with pytest.raises(RecordError, match="a ratio is not a positive number"):
            Comparison.from_json(data, "x.json")


def test_a_file_that_is_not_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "comparison.json"
    for content in ("", "[]", "{", '{"format": "llgbench comparison"}'):
        path.write_text(content)
        with pytest.raises(RecordError, match=str(path)):
            comparison.read(path)


def test_another_threshold_judges_the_same_ratios() -> None:
    found = compared(1.2)
    assert found.verdict == "slower"
    assert table.judged_again(found, found.plan.threshold) is found
    lax = table.judged_again(found, 0.5)
    assert lax.verdict == "same"
    assert lax.plan == replace(found.plan, threshold=0.5)
    for before, after in zip(found.rows, lax.rows, strict=True):
        assert (before.estimate.low, before.estimate.high) == (
            after.estimate.low, after.estimate.high,
        )  # fmt: skip
    # And back again: what was measured decides, not what was judged before.
    assert table.judged_again(lax, found.plan.threshold).rows == found.rows


def test_the_stored_p_is_what_the_stored_ratios_give() -> None:
    found = compared()
    for row in found.rows:
        p = inference.beyond(row.ratios, found.plan.threshold, inference.TRIM)
        assert p == pytest.approx(row.estimate.p)
