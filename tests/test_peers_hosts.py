"""Cases in processes of their own: verdicts of real engines, and engines that die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Lab
from faulty_engine import build

from llgbench.inputs import case_file as cases
from llgbench.inputs.case import Outcome, Text
from llgbench.isolated import Limits
from llgbench.peers.host import Setup
from llgbench.peers.hosts import Host
from llgbench.peers.results import CaseResult

LIMITS = Limits(120, 12_000)
TOOL = "json-tool-call"


def setup(engine: str, *, lark: bool = False, limits: Limits = LIMITS) -> Setup:
    return Setup(engine, "llama-spm", "spaced", "wheel", limits, lark=lark)


@pytest.fixture(scope="module")
def llguidance(lab: Lab) -> Iterator[Host]:
    with Host(setup("wheel", lark=True)) as host:
        yield host


@pytest.fixture(scope="module")
def other(lab: Lab, xgrammar: str) -> Iterator[Host]:
    with Host(setup(xgrammar, lark=True)) as host:
        yield host


def test_llguidance_is_right_and_its_own_equal(llguidance: Host) -> None:
    found = llguidance.run(cases.load(TOOL), 1)
    assert (found.outcome, found.reason) == ("right", "")
    assert found.masks.differing == 0
    assert found.masks.steps > 100
    assert set(found.masks.explained) <= {"forced"}
    assert found.tried > found.masks.steps
    assert found.samples is not None
    assert found.base is not None
    assert len(found.samples.cold_mask_ns) == len(found.base.cold_mask_ns)
    assert found.pairs is not None
    assert len(found.pairs.engine_ns) + len(found.pairs.left_out) == len(found.samples.cold_mask_ns)


def test_another_engine_beside_the_reference(other: Host) -> None:
    found = other.run(cases.load(TOOL), 1)
    assert found.outcome == "right"
    assert {"json-escapes", "controls"} <= set(found.masks.explained)
    # JSON Schema's `date` is RFC 3339's full-date, and November has 30 days.
    first = found.masks.first
    assert first is not None
    assert first.extra
    assert b'"2025-11-3' in first.after + first.token
    assert found.pairs is not None
    assert len(found.pairs.left_out) >= found.masks.differing


def test_judged_alone_nothing_is_timed(other: Host) -> None:
    found = other.run(cases.load(TOOL), 0)
    assert found.outcome == "right"
    assert (found.samples, found.base, found.pairs) == (None, None, None)
    assert 0 < found.inside_s < found.seconds


# The larger members of the families take an engine minutes on a machine that is busy.
AS_IT_STANDS = (
    "listed", "soname", "ipv6-host-port", "fstring-greedy",
    *(name for name in cases.names(ROOT) if name.startswith("checkpoint")
      and int(name.partition("@")[2]) <= 256),
)  # fmt: skip


@pytest.mark.parametrize("name", AS_IT_STANDS)
def test_lark_as_it_stands_is_what_the_fallback_records(other: Host, name: str) -> None:
    """An engine that has no lexer confirms what the greedy lexeme fallback accepts."""
    found = other.run(cases.load(name), 0)
    assert (found.outcome, found.reason) == ("right", "")
    assert found.white_space == "–"
    assert found.masks.differing == 0


def test_where_lark_has_no_standard_no_reading_is_wrong(other: Host) -> None:
    found = other.run(cases.load("ab-abc"), 1)
    assert found.outcome == "another reading"
    assert found.pairs is not None  # kept, and no ratio is formed of it: see test_peers_report.py


def test_a_wrong_record_is_found(other: Host) -> None:
    case = cases.load(TOOL)
    valid, invalid = case.texts[0], next(t for t in case.texts if t.name == "unknown-tool")

    def with_text(text: Text) -> CaseResult:
        from dataclasses import replace

        return other.run(replace(case, texts=(text,)), 0)

    refused = with_text(Text("x", invalid.data, Outcome(), Outcome()))
    assert refused.outcome == "refuses valid"
    assert "at byte" in refused.reason
    accepted = with_text(Text("x", valid.data, Outcome(20), Outcome(20)))
    assert accepted.outcome == "accepts invalid"
    assert with_text(Text("x", valid.data)).outcome == "not judged"


def test_what_does_not_compile_is_a_result(other: Host, llguidance: Host) -> None:
    from dataclasses import replace

    broken = replace(cases.load(TOOL), source='{"type": "strin"}')
    for host in (other, llguidance):
        found = host.run(broken, 1)
        assert found.outcome == "does not compile"
        assert found.reason
        assert host.run(cases.load(TOOL), 0).outcome == "right"  # the host goes on


@pytest.mark.parametrize(
    ("body", "outcome", "words"),
    [
        ("abort();", "crashed", "SIGABRT"),
        ("*(volatile int *)0 = 1;", "crashed", "SIGSEGV"),
        ("for (;;) pause();", "over its time", "more than 5 s"),
        (
            "for (;;) { void *p = malloc(1 << 24); "
            'if (!p) { fputs("memory allocation of 16777216 bytes failed\\n", stderr); abort(); } '
            "memset(p, 1, 1 << 24); }",
            "over its memory",
            "more than 3000 MiB",
        ),
    ],
    ids=["abort", "crash", "hang", "memory"],
)
def test_an_engine_that_dies_is_a_row(
    tmp_path: Path, lab: Lab, body: str, outcome: str, words: str
) -> None:
    library = build(tmp_path, "llg_matcher_compute_mask", body)
    seconds = 120 if outcome == "over its memory" else 5
    with Host(setup(str(library), limits=Limits(seconds, 3000))) as host:
        for _ in range(2):  # and the host survives it
            found = host.run(cases.load(TOOL), 1)
            assert (found.outcome, found.samples) == (outcome, None)
            assert words in found.reason


def test_what_is_judged_beside_others_is_limited_in_cpu_time(tmp_path: Path, lab: Lab) -> None:
    library = build(tmp_path, "llg_matcher_compute_mask", "for (;;) ;")
    with Host(setup(str(library), limits=Limits(2, 12_000))) as host:
        found = host.run(cases.load(TOOL), 0)
    assert (found.outcome, found.reason) == ("over its time", "more than 2 s of CPU time")


def test_no_case_is_blamed_for_what_another_left_behind(tmp_path: Path, lab: Lab) -> None:
    """Cases that are judged alone share a process: one that dies in it is judged again."""
    library = build(tmp_path, "llg_matcher_compute_mask", "static int n; if (++n == 400) abort();")
    with Host(setup(str(library))) as host:
        found = [host.run(cases.load(TOOL), 0) for _ in range(4)]
    assert 100 < found[0].masks.steps < 400 < 4 * found[0].masks.steps
    assert [r.outcome for r in found] == ["right"] * 4
    assert all(r.masks == found[0].masks for r in found)


def test_an_engine_that_contradicts_itself(tmp_path: Path, lab: Lab) -> None:
    body = "static int n; if (++n == 30) return -1;"
    library = build(tmp_path, "llg_matcher_consume_token", body)
    with Host(setup(str(library))) as host:
        found = host.run(cases.load(TOOL), 1)
    assert found.outcome == "contradicts itself"
    assert "does not accept it" in found.reason or "refuses a token" in found.reason
    assert found.pairs is None


def test_a_mask_that_is_wrong_differs(tmp_path: Path, lab: Lab) -> None:
    body = "static uint32_t m[1000]; memcpy(m, TRUTH, sizeof m); m[20] |= 1u << 5; return m;"
    library = build(tmp_path, "llg_matcher_get_mask", body)
    with Host(setup(str(library))) as host:
        found = host.run(cases.load(TOOL), 1)
    assert found.masks.differing > 0 or found.outcome == "contradicts itself"


def test_an_engine_that_dies_as_it_loads(tmp_path: Path, lab: Lab) -> None:
    library = build(tmp_path, "llg_new_tokenizer", "abort();")
    with Host(setup(str(library))) as host:
        found = host.run(cases.load(TOOL), 1)
    assert found.outcome == "not available"
    assert "does not survive being loaded" in found.reason


def test_an_engine_that_is_not_here(lab: Lab) -> None:
    with Host(setup("xgrammar:0.0.1")) as host:
        assert "engine add xgrammar:0.0.1" in host.run(cases.load(TOOL), 1).reason
