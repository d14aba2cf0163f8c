"""What the documents show of a command is what the command prints, but for what is abridged."""

from __future__ import annotations

import re
import shlex

import pytest
from conftest import ROOT
from in_process import llgbench

EXAMPLES = [
    (shlex.split(command), shown)
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for command, shown in re.findall(
        r"^```\n\$ llgbench (.*)\n((?:(?!```).*\n)+)```$", document.read_text(), re.M
    )
    if "…" not in shown
]


@pytest.mark.usefixtures("_vocabs_here")
@pytest.mark.parametrize(("words", "shown"), EXAMPLES, ids=lambda part: part[0])
def test_an_example_is_what_is_printed(words: list[str], shown: str) -> None:
    assert llgbench(*words).stdout.startswith(shown)


def test_there_are_examples() -> None:
    assert {words[0] for words, _ in EXAMPLES} == {"vocab", "check"}
