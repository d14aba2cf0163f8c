from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llgbench.measure import correctness
from llgbench.measure.correctness import Found

pytestmark = pytest.mark.usefixtures("lab")


class Silent:
    def doing(self, what: str) -> None:
        pass

    def done(self, n: int = 1) -> None:
        pass


@contextmanager
def silent(total: int, what: str) -> Iterator[Silent]:
    yield Silent()


def check(tmp_path: Path, toml: str, lark: str = 'start: "on"', *, masks: bool = True) -> Found:
    (tmp_path / "case.toml").write_text(toml)
    (tmp_path / "grammar.lark").write_text(lark)
    return correctness.check(
        ("llama-spm",), ("greedy_tokenize",), (str(tmp_path),), masks=masks, show=silent
    )


def test_an_offset_that_is_not_the_recorded_one(tmp_path: Path) -> None:
    """By bytes and by tokens, in the words that ``run`` has."""
    found = check(
        tmp_path, '[[texts]]\ntext = "of"\nstock = { reject_at = 1 }', 'start: "on" | "x"'
    )
    (row,) = found.text_rows()
    assert (row["found"], row["as recorded"]) == ("rejected at byte 1", True)
    found = check(tmp_path, '[[texts]]\ntext = "of"\nstock = { reject_at = 0 }')
    (row,) = found.text_rows()
    assert (row["recorded"], row["as recorded"]) == ("rejected at byte 0", False)
    (verdict,) = (v for _, v in found.verdicts)
    assert verdict.reason == "rejects 'of' at byte 1, recorded as rejected at byte 0"
    assert len(found.unexpected) == 2
    assert all(verdict.reason in line for line in found.unexpected)


def test_a_text_of_which_nothing_is_recorded(tmp_path: Path) -> None:
    found = check(tmp_path, '[[texts]]\ntext = "of"')
    (row,) = found.text_rows()
    assert (row["recorded"], row["as recorded"]) == ("", None)
    assert [v.label for _, v in found.verdicts] == ["refused"]
    assert found.unexpected == []


def test_a_case_without_texts(tmp_path: Path) -> None:
    found = check(tmp_path, 'reason = "x"')
    assert [v.label for _, v in found.verdicts] == ["not judged"]
    assert [why for _, why in found.unavailable] == ["it has no texts"]


def test_a_case_with_special_tokens(tmp_path: Path) -> None:
    toml = (
        '[[texts]]\ntext = "<s>on"\nspecial_tokens = ["<s>"]\nstock = "accept"\n'
        '[[texts]]\nname = "plain"\ntext = "<s>on"\nstock = { reject_at = 0 }\n'
    )
    found = check(tmp_path, toml, 'start: <s> "on"')
    assert found.unexpected == []
    assert [v.label for _, v in found.verdicts] == ["right"]


def test_the_probe_of_a_literal(tmp_path: Path) -> None:
    found = check(tmp_path, "", masks=False)
    (row,) = (r for r in found.probe_rows() if r["vocab"] == "llama-spm")
    assert (row["literal"], row["verdict"]) == ("text", "right")
    forced = correctness.check(("qwen2",), ("token_to_piece",), (str(tmp_path),), masks=False,
                               show=silent)  # fmt: skip
    (row,) = (r for r in forced.probe_rows() if r["vocab"] == "qwen2")
    assert row["literal"] == "taken for a token"


def test_a_grammar_that_does_not_compile_names_its_own_line(tmp_path: Path) -> None:
    found = check(tmp_path, '[[texts]]\ntext = "a"', 'start: "a"\nb: ]')
    assert found.unexpected
    assert all("does not compile: 2(" in line for line in found.unexpected)
    assert all("\n" not in line for line in found.unexpected)
