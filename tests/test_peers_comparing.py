"""Other engines by ``llgbench compare``: what a ratio is formed of, and what is said besides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import Lab
from made_comparison import compared
from test_cli import refused

from llgbench import isolated
from llgbench.compare import words
from llgbench.compare.comparison import Comparison
from llgbench.compare.facts import Common
from llgbench.compare.messages import Answer, Job
from llgbench.errors import CompareError, InputError, LlgbenchError
from llgbench.peers import comparing, comparing_worker
from llgbench.report import pull_request

SCHEMA = """{"type": "object", "properties": {"a": {"type": "integer"}, "s": {"type": "string"}},
"required": ["a"], "additionalProperties": false}"""
TEXTS = {"long": '{"a": 12, "s": "some words of a string"}', "short": '{"a": 1}'}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("cases") / "small"
    (folder / "texts").mkdir(parents=True)
    (folder / "schema.json").write_text(SCHEMA)
    toml = 'reason = "small"\ntags = ["json"]\n'
    for name, text in TEXTS.items():
        (folder / "texts" / f"{name}.json").write_text(text)
        toml += f'[[texts]]\nfile = "texts/{name}.json"\nstock = "accept"\nfallback = "accept"\n'
    (folder / "case.toml").write_text(toml)
    return str(folder)


def one_process(base: str, head: str, *cases: str, white_space: str = "spaced") -> Answer:
    sides = [comparing._resolve(spec, lambda _: None) for spec in (base, head)]
    job = Job(
        base=sides[0], head=sides[1], vocab="llama-spm", cases=cases, variant=comparing.VARIANT,
        white_space=white_space,
    )  # fmt: skip
    return isolated.call(comparing_worker.run, job)


def test_two_modes_of_one_library_in_one_process(lab: Lab, xgrammar: str, case: str) -> None:
    answer = one_process(xgrammar, f"{xgrammar}+lazy", case)
    (common,) = answer.common
    assert common.equal == common.steps > 20
    assert (common.explained, common.differing, common.first) == ({}, 0, "")
    times = answer.cases[case].times
    assert times is not None
    n_texts = len(answer.cases[case].texts)
    assert n_texts == len(TEXTS)
    for side in (times.base, times.head):
        assert len(side.compile.arrays) == answer.cases[case].rounds * n_texts
        assert sum(map(len, side.mask.arrays[:n_texts])) == common.steps - common.left_out


def test_another_engine_beside_llguidance(lab: Lab, xgrammar: str, case: str) -> None:
    """In a string xgrammar allows more escapes: a class says so, and the ratio is of all steps."""
    answer = one_process("wheel", xgrammar, case, "github-workflow")
    common, refusal = answer.common
    assert set(common.explained) >= {"json-escapes", "controls"}
    assert 0 < common.equal < common.steps
    assert "does not compile on head" in refusal.refused
    assert list(answer.cases) == [case]
    times = answer.cases[case].times
    assert times is not None
    # Both sides have the same steps, whatever their engines went through beyond them.
    assert times.base.mask.lengths == times.head.mask.lengths


def test_where_no_case_can_be_compared(lab: Lab) -> None:
    with pytest.raises(CompareError, match="no case can be compared: listed: gbnf does not read"):
        one_process("wheel", "gbnf", "listed")


COMMON = Common("a", 60, 40, {"json-escapes": 12}, 8, 9, "head allows b'x' after b'y'", vocab="v")


def with_common(*common: Common) -> Comparison:
    return replace(compared(1.0), common=common)


def test_what_is_left_out_is_said_and_fails() -> None:
    line = words.common_line(COMMON)
    assert "40 of 60 masks equal, json-escapes 12; 9 steps are in no ratio; 8 masks differ" in line
    assert "head allows b'x' after b'y'" in line
    found = with_common(COMMON)
    assert line in pull_request.section(found)
    assert found.failed
    explained = replace(COMMON, differing=0, left_out=1, first="")
    assert not with_common(explained).failed
    assert Comparison.from_json(found.to_json(), "x").common == (COMMON,)


def test_a_case_that_is_not_compared_is_said() -> None:
    line = words.common_line(Common("a", refused="does not compile on head: x", vocab="v"))
    assert line == "a on v: not compared: does not compile on head: x"


def test_the_section_repeats_its_white_space() -> None:
    found = compared(1.0)
    found = replace(found, plan=replace(found.plan, white_space="compact"), common=(COMMON,))
    assert "--white-space compact" in pull_request.command(found)
    assert "white space compact" in pull_request.section(found)


def test_a_side_is_what_it_says(lab: Lab, xgrammar: str) -> None:
    side = comparing._resolve(xgrammar, lambda _: None)
    assert str(side).startswith("xgrammar:0.2.9 (xgrammar 0.2.9 on apache-tvm-ffi ")
    assert str(comparing._resolve("gbnf", lambda _: None)).startswith(
        "gbnf (llama.cpp of llama-cpp-"
    )
    with pytest.raises(LlgbenchError, match=r"engine add xgrammar:0\.0\.1"):
        comparing._resolve("xgrammar:0.0.1", lambda _: None)


def test_the_same_twice_is_refused() -> None:
    plan = comparing.plan_of(("json-tool-call",), (), "spaced", None, 60)
    with pytest.raises(InputError, match="--self gbnf"):
        comparing.run("gbnf", "gbnf", plan)


def test_the_command_line_refuses_what_does_not_apply() -> None:
    assert "--count counts llguidance alone" in refused("compare", "wheel", "gbnf", "--count")
    assert "greedy_tokenize" in refused("compare", "wheel", "gbnf", "--variant", "baseline")
    assert "that agree, always" in refused("compare", "wheel", "gbnf", "--where-equal")
    words_ = refused("compare", "wheel", "stock", "--white-space", "compact")
    assert "for a comparison with another engine" in words_
