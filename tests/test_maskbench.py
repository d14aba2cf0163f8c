"""MaskBench files: read as their runner reads them, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import MUTATIONS, fine, mutated

from llgbench.engines.engine import Engine
from llgbench.errors import CaseError
from llgbench.inputs import case_file
from llgbench.inputs.case import REJECTED, Case, Outcome
from llgbench.inputs.maskbench import TEXT_FORMATS, TextFormat, load_maskbench

MASKBENCH_FILE = json.dumps(
    {
        "description": "d",
        "schema": {"type": "object", "properties": {"a": {"enum": ["é", None, 1.5]}}},
        "tests": [{"data": {"a": 1}, "valid": False}, {"data": [True, "x"], "valid": True}],
    }
)


def test_a_maskbench_folder(maskbench: Path) -> None:
    found = load_maskbench(maskbench)
    files = sorted(maskbench.glob("*.json"))
    assert [c.name for c in found] == [path.stem for path in files]
    assert all(c.kind == "json_schema" and c.tags == ("maskbench",) for c in found)
    for loaded, path in zip(found, files, strict=True):
        content = json.loads(path.read_text())
        assert json.loads(loaded.source) == content["schema"]
        assert len(loaded.texts) == len(content["tests"])
        for text, test in zip(loaded.texts, content["tests"], strict=True):
            assert json.loads(text.data) == test["data"]
            assert text.stock == text.fallback == (Outcome() if test["valid"] else REJECTED)


def test_maskbench_texts_are_accepted_as_they_should(maskbench: Path, wheel: Engine) -> None:
    from llgbench.errors import GrammarError
    from llgbench.inputs.variant import REFERENCE
    from llgbench.measure.outcomes import outcome

    judged = 0
    for loaded in load_maskbench(maskbench)[::10]:
        try:
            for text in loaded.texts:
                found = outcome(wheel, loaded, text, REFERENCE)
                assert text.stock is not None
                assert text.stock.met_by(found), (loaded.name, text.name)
                judged += 1
        except GrammarError:
            continue  # a schema that llguidance does not take
    assert judged > 20


def one(tmp_path: Path, content: object) -> Case:
    (tmp_path / "a.json").write_text(json.dumps(content))
    (only,) = load_maskbench(tmp_path)
    return only


def test_a_maskbench_file_is_written_as_its_runner_does(tmp_path: Path) -> None:
    data = {"a": [1, "é"], "b": 10**30}
    content = {"schema": True, "tests": [{"data": data, "valid": True}]}
    loaded = one(tmp_path, content)
    assert loaded.source == "true"
    written = json.dumps(data, indent=None, ensure_ascii=False)
    assert loaded.texts[0].data.decode() == written
    assert written.startswith('{"a": [1, "é"], "b": 1000')
    assert loaded.texts[0].name == "valid-0"
    assert one(tmp_path, {"schema": {}}).texts == ()


def test_the_formats_of_maskbench_texts_are_cases_of_their_own(tmp_path: Path) -> None:
    content = {"schema": True, "tests": [{"data": {"a": [1]}, "valid": True}]}
    (tmp_path / "a.json").write_text(json.dumps(content))
    loaded = [load_maskbench(tmp_path, text_format)[0] for text_format in TEXT_FORMATS]
    assert [c.name for c in loaded] == ["a", "a+compact", "a+indent2"]
    assert len({c.digest for c in loaded}) == 3
    assert [c.texts[0].data for c in loaded] == [
        b'{"a": [1]}',
        b'{"a":[1]}',
        b'{\n  "a": [\n    1\n  ]\n}',
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[]", "Expected `object`"),
        ('{"tests": []}', "missing required field `schema`"),
        ('{"schema": {}, "tests": 5}', r"Expected `array`, got `int` - at `\$\.tests`"),
        ('{"schema": {}, "tests": {"a": 1}}', r"at `\$\.tests`"),
        ('{"schema": {}, "tests": [5]}', r"at `\$\.tests\[0\]`"),
        ('{"schema": {}, "tests": [{"data": 1}]}', "missing required field `valid`"),
        ('{"schema": {}, "tests": [{"data": 1, "valid": "no"}]}', r"at `\$\.tests\[0\]\.valid`"),
        ('{"schema": {}, "tests": [{"data": "\\ud800", "valid": true}]}', "test 0 is not UTF-8"),
        ('{"schema": {"const": "\\ud800"}, "tests": []}', "schema is not UTF-8"),
        ('{"\\ud800": 1, "schema": {}}', "surrogates not allowed"),
        ('{"schema": {"const": NaN}}', "NaN is not JSON"),
        ('{"schema": {}, "tests": [{"data": -Infinity, "valid": true}]}', "-Infinity is not JSON"),
        ('{"schema": {}, "tests": [{"data": 1e999, "valid": true}]}', "test 0: Out of range"),
        ('{"schema": ' + "[" * 100_000, "nested too deeply"),
        ('{"schema": 1' + "0" * 5000 + "}", "4300 digits"),
    ],
)
def test_a_malformed_maskbench_file(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(CaseError, match=why) as caught:
        load_maskbench(tmp_path)
    assert str(tmp_path / "a.json") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_maskbench_files(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(CaseError, match=r"no MaskBench files \(\*\.json\) there"):
            load_maskbench(folder)
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(CaseError, match=r"a\.json"):
        load_maskbench(tmp_path)
    (tmp_path / "a.json").write_bytes(b"\xff")
    with pytest.raises(CaseError, match="not UTF-8 at byte 0"):
        load_maskbench(tmp_path)


@pytest.mark.fuzz
@MUTATIONS
@given(content=mutated((MASKBENCH_FILE,)), text_format=st.sampled_from(TEXT_FORMATS))
def test_a_mutated_maskbench_file(tmp_path: Path, content: bytes, text_format: TextFormat) -> None:
    (tmp_path / "a.json").write_bytes(content)
    fine(lambda: load_maskbench(tmp_path, text_format))
    fine(lambda: [case_file.from_files(tmp_path / "a.json", [tmp_path / "a.json"])])
