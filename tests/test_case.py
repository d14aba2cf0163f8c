from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ROOT

from llgbench import case
from llgbench.case import Case, Outcome, Text
from llgbench.engine import Engine
from llgbench.errors import CaseError, UnknownNameError

NAMES = case.names(ROOT)

GOOD = """\
reason = "A test."
origin = "here"
tags = ["quick"]
options = { no_forcing = true }

[[texts]]
text = "ab"
stock = "accept"

[[texts]]
name = "short"
file = "short.txt"
stock = { reject_at = "end" }
fallback = { reject_at = 1 }
note = "Why."
"""

FAMILY = """\
reason = "A family."
parameter = { name = "n", values = [2, 3] }

[[texts]]
name = "all"
pieces = ["a", { repeat = "b", times = "n" }, { repeat = "c", times = 2 }]
stock = { reject_at_value_plus = 1 }
"""


def write(
    root: Path, toml: str, lark: str | bytes | None = 'start: "ab"', schema: str | None = None
) -> Path:
    folder = root / "grammars" / "x"
    folder.mkdir(parents=True)
    (folder / "case.toml").write_text(toml)
    (folder / "short.txt").write_text("a")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    if isinstance(lark, str):
        lark = lark.encode()
    if lark is not None:
        (folder / "grammar.lark").write_bytes(lark)
    if schema is not None:
        (folder / "schema.json").write_text(schema)
    return root


# ---- the committed cases ----


@pytest.mark.parametrize("name", NAMES)
def test_every_committed_case_loads(name: str) -> None:
    loaded = case.load(name, ROOT)
    assert loaded.name == name
    assert loaded.reason
    assert loaded.texts
    assert loaded.path.is_file()
    for text in loaded.texts:
        text.data.decode()
        # what stock accepts, the fallback accepts: it never had to fall back
        assert text.stock is not None
        assert text.fallback is not None
        assert text.fallback.accepted or not text.stock.accepted
        if not (text.fallback.accepted or text.stock.accepted):
            assert text.fallback.reject_at is not None
            assert text.stock.reject_at is not None
            assert text.stock.reject_at <= text.fallback.reject_at


def test_every_committed_case_is_in_the_readme() -> None:
    readme = (ROOT / "grammars" / "README.md").read_text()
    for folder in {name.partition("@")[0] for name in NAMES}:
        assert f"| `{folder}` |" in readme


def test_names() -> None:
    assert list(dict.fromkeys(NAMES)) == NAMES
    assert {"listed", "json-tool-call", "checkpoint@16", "checkpoint@16384"} <= set(NAMES)
    assert "checkpoint" not in NAMES


def test_digests_tell_cases_apart() -> None:
    digests = {case.load(name, ROOT).digest for name in NAMES}
    assert len(digests) == len(NAMES)


# ---- loading ----


def test_a_good_case(tmp_path: Path) -> None:
    loaded = case.load("x", write(tmp_path, GOOD))
    assert case.names(tmp_path) == ["x"]
    assert (loaded.kind, loaded.reason, loaded.tags) == ("lark", "A test.", ("quick",))
    first, second = loaded.texts
    assert first == Text("ab", b"ab", Outcome())
    assert second == Text("short", b"a", Outcome(1), Outcome(1), "Why.")
    assert second.data == b"a"
    assert str(Outcome()) == "accepted"
    assert str(Outcome(3)) == "rejected at byte 3"


def test_options_come_in_the_first_line(tmp_path: Path) -> None:
    loaded = case.load("x", write(tmp_path, GOOD))
    first, rest = loaded.lark({"x": 1, "no_forcing": False}).split("\n", 1)
    assert first.startswith("%llguidance ")
    assert json.loads(first.removeprefix("%llguidance ")) == {"no_forcing": False, "x": 1}
    assert rest == 'start: "ab"'
    assert json.loads(loaded.lark().split("\n")[0].removeprefix("%llguidance ")) == {
        "no_forcing": True
    }


def test_a_schema_becomes_lark(tmp_path: Path) -> None:
    root = write(tmp_path, 'reason = "x"', None, '{"type": "integer"}')
    loaded = case.load("x", root)
    assert loaded.kind == "json_schema"
    assert loaded.lark() == '%llguidance {}\nstart: %json {"type": "integer"}'
    assert loaded.texts == ()


def test_a_member_of_a_family(tmp_path: Path) -> None:
    root = write(tmp_path, FAMILY, "start: /ab{$n}c{2}$/")
    assert case.names(root) == ["x@2", "x@3"]
    member = case.load("x@3", root)
    assert (member.name, member.value) == ("x@3", 3)
    assert member.source == "start: /ab{3}c{2}$/"
    assert member.texts == (Text("all", b"abbbcc", Outcome(4)),)
    assert member.texts[0].data == b"abbbcc"
    assert case.load("x@5", root).texts[0].data == b"abbbbbcc"  # not listed, and fine
    assert case.load("x@0", root).texts[0].data == b"acc"


@pytest.mark.parametrize(
    "name",
    ["x", "x@", "x@a", "x@-1", "x@02", "x@ 2", "x@2@3", "x@\u0663", "x@99999999999999999999"],
)
def test_no_member_of_a_family(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownNameError, match="x@2"):
        case.load(name, write(tmp_path, FAMILY))


@pytest.mark.parametrize("name", ["", ".", "..", "y", "x@2", "x@", "a\0b", "X" * 300])
def test_no_such_case(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown case .*(did you mean|known:) x"):
        case.load(name, write(tmp_path, GOOD))


def test_a_case_by_its_folder(tmp_path: Path) -> None:
    folder = write(tmp_path, GOOD) / "grammars" / "x"
    assert case.load(str(folder), ROOT).texts == case.load("x", tmp_path).texts
    with pytest.raises(CaseError, match=r"case\.toml: no such file"):
        case.load(str(tmp_path), ROOT)


def test_the_nearest_case() -> None:
    with pytest.raises(UnknownNameError, match="did you mean json-tool-call"):
        case.load("json-tool-cal", ROOT)


TEXT = 'reason = ""\n[[texts]]\n'
BAD = {
    "no toml": ("reason = ", "Invalid value"),
    "no utf-8": (None, "not UTF-8 at byte 12"),
    "unknown key": ('reson = "x"', "unknown key 'reson'"),
    "reason is no string": ("reason = 5", "reason is a string"),
    "tags is a string": ('tags = "quick"', "tags is a list of strings"),
    "tags of numbers": ("tags = [1]", "tags is a list of strings"),
    "options is a list": ("options = [1]", "options is a table"),
    "options is a string": ('options = "no_forcing"', "options is a table"),
    "texts is a number": ("texts = 5", "texts is a list"),
    "texts of strings": ('texts = ["a"]', "text 0 is a table"),
    "texts is a table": ('[texts]\ntext = "a"', "texts is a list"),
    "unknown text key": (TEXT + 'text = "a"\nstok = "accept"', "text 0: unknown key 'stok'"),
    "no text": (TEXT + 'name = "a"', "text 0: needs one of file, text and pieces"),
    "two texts in one": (TEXT + 'text = "a"\nfile = "short.txt"', "needs one of"),
    "text is a number": (TEXT + "text = 5", "a file and a text are strings"),
    "pieces without parameter": (TEXT + 'name = "a"\npieces = ["a"]', "need a parameter"),
    "name is a number": (TEXT + 'text = "a"\nname = 5', "needs a name"),
    "no such file": (TEXT + 'file = "nope.txt"', "nope.txt: No such file"),
    "a folder": (TEXT + 'file = "."\nname = "a"', "Is a directory"),
    "NUL in a name": (TEXT + 'file = "a\\u0000b"', "null byte"),
    "text not utf-8": (TEXT + 'file = "latin.txt"', "latin.txt: not UTF-8 at byte 3"),
    "two of a name": (
        TEXT + 'text = "short"\n[[texts]]\nfile = "short.txt"',
        "text 1: a second text is named 'short'",
    ),
    "bad outcome": (TEXT + 'text = "a"\nstock = "accepted"', "an outcome is 'accept'"),
    "outcome is a number": (TEXT + 'text = "a"\nstock = 1', "an outcome is"),
    "outcome beyond the text": (TEXT + 'text = "a"\nstock = { reject_at = 2 }', "within the text"),
    "negative outcome": (TEXT + 'text = "a"\nfallback = { reject_at = -1 }', "an outcome is"),
    "true as an offset": (TEXT + 'text = "a"\nstock = { reject_at = true }', "an outcome is"),
    "outcome with more": (
        TEXT + 'text = "a"\nstock = { reject_at = 0, why = "x" }',
        "an outcome is",
    ),
    "family outcome, no family": (
        TEXT + 'text = "a"\nstock = { reject_at_value_plus = 0 }',
        "an outcome is",
    ),
    "parameter is a string": ('parameter = "n"', "parameter needs a name and a list"),
    "no values": ('parameter = { name = "n", values = [] }', "parameter needs"),
    "values of strings": ('parameter = { name = "n", values = ["1"] }', "parameter needs"),
    "values of booleans": ('parameter = { name = "n", values = [true] }', "parameter needs"),
    "negative values": ('parameter = { name = "n", values = [-1] }', "parameter needs"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_malformed_case(tmp_path: Path, what: str) -> None:
    toml, why = BAD[what]
    root = write(tmp_path, toml or "")
    path = root / "grammars" / "x"
    if toml is None:
        (path / "case.toml").write_bytes(b'reason = "ca\xe9"')
    with pytest.raises(CaseError, match=why) as caught:
        case.load("x@2" if what.endswith("values") else "x", root)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


BAD_FAMILY = {
    "outcome beyond": ("reject_at_value_plus = 1", "reject_at_value_plus = 9", "an outcome is"),
    "outcome before": ("reject_at_value_plus = 1", "reject_at_value_plus = -9", "an outcome is"),
    "no name": ('name = "all"\n', "", "text 0: needs a name"),
    "a piece is a number": ('"a", {', "5, {", "a piece is a string"),
    "times of another name": ('times = "n"', 'times = "m"', "a piece is a string"),
    "a piece with more": ('times = "n"', 'times = "n", x = 1', "a piece is a string"),
}


@pytest.mark.parametrize("what", BAD_FAMILY)
def test_a_malformed_family(tmp_path: Path, what: str) -> None:
    old, new, why = BAD_FAMILY[what]
    assert old in FAMILY
    with pytest.raises(CaseError, match=why):
        case.load("x@2", write(tmp_path, FAMILY.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("lark", "schema", "why"),
    [
        ('start: "a"', "{}", "needs one of schema.json and grammar.lark"),
        (None, None, "needs one of schema.json and grammar.lark"),
        (b'start: "caf\xe9"', None, "grammar.lark: not UTF-8 at byte 11"),
        (None, "{broken", "schema.json: Expecting property name"),
        (None, "[" * 100_000, "schema.json: .*(recursion|overflow)"),
    ],
)
def test_a_grammar_file_that_is_wrong(
    tmp_path: Path, lark: str | bytes | None, schema: str | None, why: str
) -> None:
    root = write(tmp_path, GOOD, lark, schema)
    with pytest.raises(CaseError, match=why) as caught:
        case.load("x", root)
    assert str(root / "grammars" / "x") in str(caught.value)


def test_names_names_the_file_that_is_broken(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"x/case\.toml"):
        case.names(write(tmp_path, "reason = "))


def test_a_digest_is_of_what_is_measured(tmp_path: Path) -> None:
    base = case.load("x", write(tmp_path / "a", GOOD)).digest
    reworded = GOOD.replace("A test.", "Another reason.").replace("Why.", "Because.")
    assert case.load("x", write(tmp_path / "b", reworded)).digest == base
    for number, (old, new) in enumerate(
        [('text = "ab"', 'text = "abc"'), ("no_forcing = true", "no_forcing = false")]
    ):
        root = write(tmp_path / str(number), GOOD.replace(old, new))
        assert case.load("x", root).digest != base
    assert case.load("x", write(tmp_path / "g", GOOD, 'start: "ac"')).digest != base


# ---- MaskBench ----


def test_a_maskbench_folder(maskbench: Path) -> None:
    found = case.load_maskbench(maskbench)
    files = sorted(maskbench.glob("*.json"))
    assert [c.name for c in found] == [path.stem for path in files]
    assert all(c.kind == "json_schema" and c.tags == ("maskbench",) for c in found)
    for loaded, path in zip(found, files, strict=True):
        content = json.loads(path.read_text())
        assert json.loads(loaded.source) == content["schema"]
        assert len(loaded.texts) == len(content["tests"])
        for text, test in zip(loaded.texts, content["tests"], strict=True):
            assert json.loads(text.data) == test["data"]
            assert text.stock == text.fallback == (Outcome() if test["valid"] else None)


def test_maskbench_texts_are_accepted_as_they_should(maskbench: Path, wheel: Engine) -> None:
    from llgbench.checks import outcome
    from llgbench.errors import GrammarError
    from llgbench.variant import REFERENCE

    judged = 0
    for loaded in case.load_maskbench(maskbench)[::10]:
        try:
            for text in loaded.texts:
                found = outcome(wheel, loaded, text, REFERENCE)
                assert found.accepted == (text.stock is not None), (loaded.name, text.name)
                judged += 1
        except GrammarError:
            continue  # a schema that llguidance does not take
    assert judged > 20


def one(tmp_path: Path, content: object) -> Case:
    (tmp_path / "a.json").write_text(json.dumps(content))
    (only,) = case.load_maskbench(tmp_path)
    return only


def test_a_maskbench_file_is_written_as_the_harness_does(tmp_path: Path) -> None:
    data = {"a": [1, "é"]}
    loaded = one(tmp_path, {"schema": True, "tests": [{"data": data, "valid": True}]})
    assert loaded.source == "true"
    assert loaded.texts[0].data == '{\n  "a": [\n    1,\n    "é"\n  ]\n}'.encode()
    assert loaded.texts[0].name == "valid-0"
    assert one(tmp_path, {"schema": {}}).texts == ()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([], "no MaskBench file"),
        ({"tests": []}, "it has no 'schema'"),
        ({"schema": {}, "tests": 5}, "'tests' is no list"),
        ({"schema": {}, "tests": {"a": 1}}, "'tests' is no list"),
        ({"schema": {}, "tests": [5]}, "test 0 has no 'data' or no 'valid'"),
        ({"schema": {}, "tests": [{"data": 1}]}, "test 0 has no 'data' or no 'valid'"),
        ({"schema": {}, "tests": [{"data": 1, "valid": "no"}]}, "'valid' is true or false"),
        ({"schema": {}, "tests": [{"data": "\ud800", "valid": True}]}, "test 0 is not UTF-8"),
        ({"schema": {"const": "\ud800"}, "tests": []}, "schema is not UTF-8"),
    ],
)
def test_a_malformed_maskbench_file(tmp_path: Path, content: object, why: str) -> None:
    with pytest.raises(CaseError, match=why) as caught:
        one(tmp_path, content)
    assert str(tmp_path / "a.json") in str(caught.value)


def test_no_maskbench_files(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(CaseError, match=r"no MaskBench files \(\*\.json\) there"):
            case.load_maskbench(folder)
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(CaseError, match=r"a\.json"):
        case.load_maskbench(tmp_path)
    (tmp_path / "a.json").write_bytes(b"\xff")
    with pytest.raises(CaseError, match="not UTF-8 at byte 0"):
        case.load_maskbench(tmp_path)
