from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st
from mutations import MUTATIONS, fine, mutated

from llgbench.engines.engine import Tokenizer
from llgbench.errors import CaseError, GrammarError, UnknownNameError
from llgbench.inputs import case_file, case_text
from llgbench.inputs.case import REJECTED, Outcome, Text

NAMES = case_file.names(ROOT)

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
    loaded = case_file.load(name, ROOT)
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
    digests = {case_file.load(name, ROOT).digest for name in NAMES}
    assert len(digests) == len(NAMES)


# ---- loading ----


def test_a_good_case(tmp_path: Path) -> None:
    loaded = case_file.load("x", write(tmp_path, GOOD))
    assert case_file.names(tmp_path) == ["x"]
    assert (loaded.kind, loaded.reason, loaded.tags) == ("lark", "A test.", ("quick",))
    first, second = loaded.texts
    assert first == Text("ab", b"ab", Outcome())
    assert second == Text("short", b"a", Outcome(1), Outcome(1), "Why.")
    assert second.data == b"a"
    assert str(Outcome()) == "accepted"
    assert str(Outcome(3)) == "rejected at byte 3"


def test_options_come_in_the_first_line(tmp_path: Path) -> None:
    loaded = case_file.load("x", write(tmp_path, GOOD))
    first, rest = loaded.lark({"x": 1, "no_forcing": False}).split("\n", 1)
    assert first.startswith("%llguidance ")
    assert json.loads(first.removeprefix("%llguidance ")) == {"no_forcing": False, "x": 1}
    assert rest == 'start: "ab"'
    assert json.loads(loaded.lark().split("\n")[0].removeprefix("%llguidance ")) == {
        "no_forcing": True
    }


def test_a_schema_becomes_lark(tmp_path: Path) -> None:
    root = write(tmp_path, 'reason = "x"', None, '{"type": "integer"}')
    loaded = case_file.load("x", root)
    assert loaded.kind == "json_schema"
    assert loaded.lark() == '%llguidance {}\nstart: %json {"type": "integer"}'
    assert loaded.texts == ()


def test_a_member_of_a_family(tmp_path: Path) -> None:
    root = write(tmp_path, FAMILY, "start: /ab{$n}c{2}$/")
    assert case_file.names(root) == ["x@2", "x@3"]
    member = case_file.load("x@3", root)
    assert (member.name, member.value) == ("x@3", 3)
    assert member.source == "start: /ab{3}c{2}$/"
    assert member.texts == (Text("all", b"abbbcc", Outcome(4)),)
    assert member.texts[0].data == b"abbbcc"
    assert case_file.load("x@5", root).texts[0].data == b"abbbbbcc"  # not listed, and fine
    assert case_file.load("x@0", root).texts[0].data == b"acc"


@pytest.mark.parametrize(
    "name",
    ["x", "x@", "x@a", "x@-1", "x@02", "x@ 2", "x@2@3", "x@\u0663", "x@99999999999999999999"],
)
def test_no_member_of_a_family(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownNameError, match="x@2"):
        case_file.load(name, write(tmp_path, FAMILY))


@pytest.mark.parametrize("name", ["", ".", "..", "y", "x@2", "x@", "a\0b", "X" * 300])
def test_no_such_case(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown case .*(did you mean|known:) x"):
        case_file.load(name, write(tmp_path, GOOD))


def test_a_case_by_its_folder(tmp_path: Path) -> None:
    folder = write(tmp_path, GOOD) / "grammars" / "x"
    assert case_file.load(str(folder), ROOT).texts == case_file.load("x", tmp_path).texts
    with pytest.raises(CaseError, match=r"case\.toml: no such file"):
        case_file.load(str(tmp_path), ROOT)


def test_the_nearest_case() -> None:
    with pytest.raises(UnknownNameError, match="did you mean json-tool-call"):
        case_file.load("json-tool-cal", ROOT)


TEXT = 'reason = ""\n[[texts]]\n'
BAD = {
    "no toml": ("reason = ", "Invalid value"),
    "no utf-8": (None, "not UTF-8 at byte 12"),
    "unknown key": ('reson = "x"', "unknown field `reson`"),
    "reason is no string": ("reason = 5", r"Expected `str`, got `int` - at `\$\.reason`"),
    "tags is a string": ('tags = "quick"', r"Expected `array`, got `str` - at `\$\.tags`"),
    "tags of numbers": ("tags = [1]", r"at `\$\.tags\[0\]`"),
    "options is a list": ("options = [1]", r"at `\$\.options`"),
    "options is a string": ('options = "no_forcing"', r"at `\$\.options`"),
    "texts is a number": ("texts = 5", r"at `\$\.texts`"),
    "texts of strings": ('texts = ["a"]', r"at `\$\.texts\[0\]`"),
    "texts is a table": ('[texts]\ntext = "a"', r"at `\$\.texts`"),
    "unknown text key": (
        TEXT + 'text = "a"\nstok = "accept"',
        r"unknown field `stok` - at `\$\.texts\[0\]`",
    ),
    "no text": (TEXT + 'name = "a"', "text 0: needs one of file, text and pieces"),
    "two texts in one": (TEXT + 'text = "a"\nfile = "short.txt"', "needs one of"),
    "text is a number": (TEXT + "text = 5", r"at `\$\.texts\[0\]\.text`"),
    "pieces without parameter": (TEXT + 'name = "a"\npieces = ["a"]', "need a parameter"),
    "name is a number": (TEXT + 'text = "a"\nname = 5', r"at `\$\.texts\[0\]\.name`"),
    "no such file": (TEXT + 'file = "nope.txt"', "nope.txt: No such file"),
    "a folder": (TEXT + 'file = "."\nname = "a"', "not a regular file"),
    "NUL in a name": (TEXT + 'file = "a\\u0000b"', "null byte"),
    "text not utf-8": (TEXT + 'file = "latin.txt"', "latin.txt: not UTF-8 at byte 3"),
    "two of a name": (
        TEXT + 'text = "short"\n[[texts]]\nfile = "short.txt"',
        "text 1: a second text is named 'short'",
    ),
    "bad outcome": (TEXT + 'text = "a"\nstock = "accepted"', "an outcome is 'accept'"),
    "outcome is a number": (TEXT + 'text = "a"\nstock = 1', r"at `\$\.texts\[0\]\.stock`"),
    "outcome beyond the text": (TEXT + 'text = "a"\nstock = { reject_at = 2 }', "within the text"),
    "negative outcome": (TEXT + 'text = "a"\nfallback = { reject_at = -1 }', "int` >= 0"),
    "true as an offset": (TEXT + 'text = "a"\nstock = { reject_at = true }', "got `bool`"),
    "outcome with more": (
        TEXT + 'text = "a"\nstock = { reject_at = 0, why = "x" }',
        "unknown field `why`",
    ),
    "family outcome, no family": (
        TEXT + 'text = "a"\nstock = { reject_at_value_plus = 0 }',
        "an outcome is",
    ),
    "parameter is a string": ('parameter = "n"', r"at `\$\.parameter`"),
    "no values": ('parameter = { name = "n", values = [] }', "length >= 1"),
    "values of strings": ('parameter = { name = "n", values = ["1"] }', "got `str`"),
    "values of booleans": ('parameter = { name = "n", values = [true] }', "got `bool`"),
    "negative values": ('parameter = { name = "n", values = [-1] }', "int` >= 0"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_malformed_case(tmp_path: Path, what: str) -> None:
    toml, why = BAD[what]
    root = write(tmp_path, toml or "")
    path = root / "grammars" / "x"
    if toml is None:
        (path / "case.toml").write_bytes(b'reason = "ca\xe9"')
    with pytest.raises(CaseError, match=why) as caught:
        case_file.load("x@2" if what.endswith("values") else "x", root)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


BAD_FAMILY = {
    "outcome beyond": ("reject_at_value_plus = 1", "reject_at_value_plus = 9", "an outcome is"),
    "outcome before": ("reject_at_value_plus = 1", "reject_at_value_plus = -9", "an outcome is"),
    "no name": ('name = "all"\n', "", "text 0: needs a name"),
    "a piece is a number": ('"a", {', "5, {", r"at `\$\.texts\[0\]\.pieces\[0\]`"),
    "times of another name": (
        'times = "n"',
        'times = "m"',
        "times is a number or the parameter 'n', not 'm'",
    ),
    "a piece with more": ('times = "n"', 'times = "n", x = 1', "unknown field `x`"),
}


@pytest.mark.parametrize("what", BAD_FAMILY)
def test_a_malformed_family(tmp_path: Path, what: str) -> None:
    old, new, why = BAD_FAMILY[what]
    assert old in FAMILY
    with pytest.raises(CaseError, match=why):
        case_file.load("x@2", write(tmp_path, FAMILY.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("lark", "schema", "why"),
    [
        ('start: "a"', "{}", "needs one of schema.json and grammar.lark"),
        (None, None, "needs one of schema.json and grammar.lark"),
        (b'start: "caf\xe9"', None, "grammar.lark: not UTF-8 at byte 11"),
        (None, "{broken", "schema.json: Expecting property name"),
        (None, "[" * 100_000, "schema.json: nested too deeply"),
    ],
)
def test_a_grammar_file_that_is_wrong(
    tmp_path: Path, lark: str | bytes | None, schema: str | None, why: str
) -> None:
    root = write(tmp_path, GOOD, lark, schema)
    with pytest.raises(CaseError, match=why) as caught:
        case_file.load("x", root)
    assert str(root / "grammars" / "x") in str(caught.value)


def test_names_names_the_file_that_is_broken(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"x/case\.toml"):
        case_file.names(write(tmp_path, "reason = "))


def test_a_digest_is_of_what_is_measured(tmp_path: Path) -> None:
    base = case_file.load("x", write(tmp_path / "a", GOOD)).digest
    reworded = GOOD.replace("A test.", "Another reason.").replace("Why.", "Because.")
    assert case_file.load("x", write(tmp_path / "b", reworded)).digest == base
    for number, (old, new) in enumerate(
        [('text = "ab"', 'text = "abc"'), ("no_forcing = true", "no_forcing = false")]
    ):
        root = write(tmp_path / str(number), GOOD.replace(old, new))
        assert case_file.load("x", root).digest != base
    assert case_file.load("x", write(tmp_path / "g", GOOD, 'start: "ac"')).digest != base


# ---- options of a grammar's own, and its line numbers ----


def test_a_grammars_own_options_are_merged(tmp_path: Path) -> None:
    lark = '// mine\n%llguidance {"no_forcing": false, "x":\n 1} // so\nstart: "ab"'
    loaded = case_file.load("x", write(tmp_path, GOOD, lark))
    assert loaded.options == {"no_forcing": True, "x": 1}  # case.toml is the nearer
    whole = loaded.lark({"y": 2}).split("\n")
    assert whole[0] == "// mine"
    assert json.loads(whole[1].removeprefix("%llguidance ")) == {"no_forcing": True, "x": 1, "y": 2}
    assert whole[2:] == [" // so", 'start: "ab"']  # every line keeps its number


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("%llguidance", "line 1: %llguidance needs a JSON object"),
        ("%llguidance [1]", "line 1: %llguidance needs a JSON object"),
        ('%llguidance {"a": NaN}', "line 1: .*NaN is not JSON"),
        ("%llguidance " + "[" * 100_000, "line 1: %llguidance needs a JSON object"),
        ("%llguidance {}\n%llguidance {}", "line 2: a second %llguidance line"),
        ('%llguidance {"greedy_lexeme_fallback": true}', "leave the option greedy_lexeme_fallback"),
        ('%llguidance {"lexer_backtracking": true}', "a variant turns it on"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "g.lark"
    path.write_text(f'{line}\nstart: "a"')
    with pytest.raises(CaseError, match=why) as caught:
        case_file.from_files(path, [])
    assert "\n" not in str(caught.value)


OPTIONS = {
    "a date": ("x = 2020-01-01", "date is not JSON"),
    "a time within": ("x = [{y = 07:32:00}]", "time is not JSON"),
    "no number": ("x = nan", "JSON"),
    "endless": ("x = -inf", "JSON"),
    "5,000 digits": ("x = 1" + "0" * 5000, "4300 digits"),
    "a variant's": ("greedy_lexeme_fallback = true", "a variant turns it on"),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_options_that_are_no_json(tmp_path: Path, what: str) -> None:
    line, why = OPTIONS[what]
    with pytest.raises(CaseError, match=why) as caught:
        case_file.load("x", write(tmp_path, f"[options]\n{line}"))
    assert "case.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


WRONG_IN_LINE = {
    "start: a\nb: ]\n": 2,
    "start: nowhere\n": 1,
    'start: a\na: "x"\n\na: /(/\n': 4,
    '%llguidance {}\nstart: a\na: "x\n': 3,
    '// mine\n%llguidance {"no_forcing":\n true}\nstart: nowhere\n': 4,
}


@pytest.mark.parametrize("grammar", WRONG_IN_LINE)
def test_messages_have_the_lines_of_the_file(
    tmp_path: Path, byte_tokenizer: Tokenizer, grammar: str
) -> None:
    path = tmp_path / "g.lark"
    path.write_text(grammar)
    loaded = case_file.from_files(path, [])
    number = WRONG_IN_LINE[grammar]
    with pytest.raises(GrammarError) as caught:
        byte_tokenizer.matcher(loaded.lark({"x": 1}))
    words = loaded.explain(caught.value)
    assert re.match(rf"(at )?{number}\(", words)
    quoted = re.findall(r"^ +(\d+) \| (.*)$", words, re.MULTILINE)
    lines = grammar.split("\n")
    assert (str(number), lines[number - 1]) in quoted
    # Only the options' own lines are not the file's.
    assert all(line in ("", lines[int(n) - 1]) for n, line in quoted if "%llgui" not in line)


def test_messages_of_a_schema_have_no_lines_of_another_file(
    tmp_path: Path, byte_tokenizer: Tokenizer
) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"type":\n "nope"}')
    loaded = case_file.from_files(path, [])
    with pytest.raises(GrammarError) as caught:
        byte_tokenizer.matcher(loaded.lark())
    assert "start: %json" in str(caught.value)
    words = loaded.explain(caught.value)
    assert words.startswith("failed to compile JSON schema: Invalid type: nope")
    assert "start:" not in words


# ---- what a case reads ----


OUTSIDE = ["/etc/passwd", "../y/grammar.lark", "a/../../y/grammar.lark", "link.txt", "down/p.txt"]


@pytest.mark.parametrize("file", OUTSIDE)
def test_a_case_reads_below_its_own_folder_alone(tmp_path: Path, file: str) -> None:
    root = write(tmp_path, f'{TEXT}name = "a"\nfile = "{file}"')
    folder = root / "grammars" / "x"
    (tmp_path / "p.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "p.txt")
    (folder / "down").symlink_to(tmp_path)
    with pytest.raises(CaseError, match="is not below the case's own folder"):
        case_file.load("x", root)


@pytest.mark.parametrize("name", ["grammar.lark", "case.toml"])
def test_a_case_whose_own_files_lie_elsewhere(tmp_path: Path, name: str) -> None:
    root = write(tmp_path, GOOD)
    path = root / "grammars" / "x" / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CaseError, match="is not below the case's own folder"):
        case_file.load("x", root)


def test_a_case_folder_may_be_a_link(tmp_path: Path) -> None:
    root = write(tmp_path / "real", GOOD)
    (tmp_path / "link").symlink_to(root / "grammars" / "x")
    assert case_file.load(str(tmp_path / "link")).texts == case_file.load("x", root).texts


@pytest.mark.parametrize("name", ["grammar.lark", "case.toml", "short.txt"])
def test_a_case_of_fifos_does_not_hang(tmp_path: Path, name: str) -> None:
    root = write(tmp_path, GOOD)
    path = root / "grammars" / "x" / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CaseError, match="not a regular file"):
        case_file.load("x", root)


@pytest.mark.parametrize(
    "times", ["99999999999999", "99999999999999999999", str(2**63), str(case_text.LIMIT)]
)
def test_a_text_that_would_fill_the_memory(tmp_path: Path, times: str) -> None:
    root = write(tmp_path, FAMILY.replace("times = 2", f"times = {times}"))
    with pytest.raises(CaseError, match=r"text 0: the texts of a case may have 64 MiB together"):
        case_file.load("x@2", root)


def test_all_texts_of_a_case_share_the_room(tmp_path: Path) -> None:
    half = f"{TEXT.splitlines()[1]}\nname = 'N'\npieces = [{{ repeat = 'b', times = {2**25} }}]\n"
    head = FAMILY.partition("[[texts]]")[0]
    texts = [half.replace("N", str(n)) for n in range(3)]
    assert len(case_file.load("x@2", write(tmp_path / "2", head + "".join(texts[:2]))).texts) == 2
    with pytest.raises(CaseError, match="text 2: the texts of a case may have 64 MiB"):
        case_file.load("x@2", write(tmp_path / "3", head + "".join(texts)))


def test_an_at_in_a_folders_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "job@2", FAMILY, "start: /ab{$n}c{2}$/") / "grammars" / "x"
    assert case_file.load(f"{folder}@3").name == "x@3"
    plain = folder.with_name("y@5")
    folder.rename(plain)
    with pytest.raises(UnknownNameError, match="y@5@2"):
        case_file.load(str(plain))
    assert case_file.load(f"{plain}@3").name == "y@5@3"
    with pytest.raises(CaseError, match="has no parameter"):
        case_file.load(f"{write(tmp_path / 'z', GOOD) / 'grammars' / 'x'}@3")


# ---- texts of the command line ----


def test_texts_are_named_by_their_paths(tmp_path: Path) -> None:
    grammar = tmp_path / "g.lark"
    grammar.write_text('start: "on"')
    paths = [tmp_path / name / "ok.txt" for name in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_text("on")
    loaded = case_file.from_files(grammar, paths)
    assert [text.name for text in loaded.texts] == [str(path) for path in paths]
    assert all(text.stock is text.fallback is None for text in loaded.texts)
    with pytest.raises(CaseError, match="given twice"):
        case_file.from_files(grammar, [*paths, paths[0]])


def test_a_text_of_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.lark")
    path.write_text('start: "a"')
    loaded = case_file.from_files(path, [path])
    assert loaded.name == "caf\\xe9"
    assert loaded.texts[0].name.endswith("caf\\xe9.lark")
    assert len(loaded.digest) == 16


def test_special_tokens_of_a_text(tmp_path: Path) -> None:
    toml = f'{TEXT}text = "<a>x<a><b>"\nspecial_tokens = ["<a>"]'
    (text,) = case_file.load("x", write(tmp_path, toml)).texts
    assert text.special_tokens == ("<a>",)
    assert text.split(text.special_tokens or ()) == [
        (b"<a>", True), (b"x", False), (b"<a>", True), (b"<b>", False)
    ]  # fmt: skip
    plain = case_file.load("x", write(tmp_path / "p", toml.replace('["<a>"]', "[]")))
    assert plain.digest != case_file.load("x", tmp_path).digest
    assert plain.texts[0].split([]) == [(text.data, False)]


@given(st.lists(st.sampled_from(["<a>", "<a>b", "b", "<", ".", "é"]), max_size=8))
def test_the_pieces_of_a_text_are_the_text(words: list[str]) -> None:
    data = "".join(words).encode()
    pieces = Text("t", data).split(["<a>", "<a>b", "."])
    assert b"".join(piece for piece, _ in pieces) == data
    assert all(special == (piece in (b"<a>", b"<a>b", b".")) for piece, special in pieces)


def test_a_recorded_outcome_is_met() -> None:
    assert Outcome().met_by(Outcome())
    assert not Outcome().met_by(Outcome(0))
    assert Outcome(2).met_by(Outcome(2))
    assert not Outcome(2).met_by(Outcome(5))
    assert REJECTED.met_by(Outcome(5))
    assert not REJECTED.met_by(Outcome())
    assert str(REJECTED) == "rejected"


# ---- whatever is in the files, a case or one line ----

CASE_FILES = (
    GOOD,
    FAMILY,
    'options = { a = [1, { b = 2.5 }] }\n[[texts]]\ntext = "<a>"\nspecial_tokens = ["<a>"]\n'
    'stock = { reject_at = "end" }\n',
)


@pytest.mark.fuzz
@MUTATIONS
@given(toml=mutated(CASE_FILES), lark=mutated(('%llguidance {"a": 1}\nstart: "ab$n"',)))
def test_a_mutated_case(tmp_path: Path, toml: bytes, lark: bytes) -> None:
    folder = tmp_path / "grammars" / "x"
    if not folder.exists():
        write(tmp_path, "")
    (folder / "case.toml").write_bytes(toml)
    (folder / "grammar.lark").write_bytes(lark)
    fine(
        lambda: [
            case_file.load(name, tmp_path) for name in (*case_file.names(tmp_path), f"{folder}@2")
        ]
    )
