"""The supervisor: real workers that measure, and that are killed by what they load."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import faulty_engine
import numpy as np
import pytest
from conftest import ROOT
from made_gguf import BYTES
from test_gguf_faults import write

from llgbench.errors import UnknownNameError
from llgbench.inputs import case_file
from llgbench.inputs.case import Case, Outcome, Text
from llgbench.inputs.configuration import Configuration
from llgbench.inputs.variant import DEFAULT_VARIANTS
from llgbench.isolated import Limits
from llgbench.measure import supervisor
from llgbench.measure.messages import Header, Judged, Kept, Measured
from llgbench.measure.rounds import Rounds, Unit
from llgbench.measure.runner import Tally
from llgbench.records.entry import Entry

ROUNDS = Rounds(cold=2, warm=2, cached=1)
TIMES = (
    "cold_mask", "cold_consume", "warm_mask", "warm_consume", "cached_mask",
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("lab")


def run(*configurations: Configuration, cases: dict[str, Case] | None = None) -> list[Entry]:
    return list(supervisor.run(configurations, ROUNDS, Tally(), cases))


def test_a_run_from_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLGBENCH_CACHE", str(tmp_path))  # no engine is built there
    wanted = [Configuration("json-enum", "llama-spm", v) for v in (*DEFAULT_VARIANTS, "sentinel")]
    tally = Tally()
    lines: list[str] = []
    entries = list(supervisor.run(wanted, ROUNDS, tally, progress=lines.append))
    assert [line for line in lines if ", round " not in line] == ["json-enum on llama-spm"]
    assert {e.configuration for e in entries} == set(wanted)
    by_variant = {e.configuration.variant: e for e in entries}

    missing = by_variant.pop("greedy_lexeme_fallback")
    assert missing.unavailable is not None
    assert "run: llgbench engine build fallback" in missing.unavailable
    assert not missing.samples
    assert not missing.verdict

    labels = {name: entry.verdict["label"] for name, entry in by_variant.items()}
    assert labels == {
        "baseline": "wrong",
        "token_to_piece": "wrong",
        "greedy_tokenize": "right",
        "sentinel": "right",
    }
    for name, entry in by_variant.items():
        assert entry.unavailable is None
        assert entry.engine["name"] == "wheel"
        assert entry.engine["release"] == "1.9.1"
        assert len(entry.engine["sha256"]) == 64
        texts = entry.facts["texts"]
        assert [t["name"] for t in texts] == [t["text"] for t in entry.verdict["texts"]]
        assert entry.facts["vocab_tokens"] == 32000
        assert entry.facts["wrong_tokens"] == (16410 if name == "baseline" else 0)
        assert entry.facts["greedy"] == (name == "greedy_tokenize")
        for times in TIMES:
            assert all(a.dtype == np.uint64 for a in entry.samples[times])
        assert len(entry.samples["cold_mask"]) == ROUNDS.cold * len(texts)
        assert len(entry.samples["compile"][0]) == ROUNDS.cold * len(texts)
        assert len(entry.samples["allowed"]) == len(entry.samples["mask_hash"]) == len(texts)

    right = by_variant["greedy_tokenize"]
    for text, cold in zip(right.facts["texts"], right.samples["cold_mask"], strict=False):
        judged = next(t for t in right.verdict["texts"] if t["text"] == text["name"])
        if judged["accepted"]:
            assert len(cold) in (text["tokens"], text["tokens"] + 1)  # with its end token
    assert tally.inside_ns > 0
    assert tally.setup_ns > 0
    assert tally.wall_ns > tally.setup_ns


def test_the_run_goes_vocab_by_vocab() -> None:
    lines: list[str] = []
    wanted = [Configuration("listed", vocab, "baseline") for vocab in ("llama-spm", "bert-bge")] + [
        Configuration("ab-abc", "llama-spm", "baseline")
    ]
    entries = list(supervisor.run(wanted, ROUNDS, Tally(), progress=lines.append))
    groups = [line for line in lines if ", round " not in line]
    assert groups == ["listed on bert-bge", "listed on llama-spm", "ab-abc on llama-spm"]
    assert len(entries) == 3


def test_a_named_engine_without_the_fallback() -> None:
    (entry,) = run(Configuration("listed", "llama-spm", "greedy_lexeme_fallback", "wheel"))
    assert entry.unavailable is not None
    assert "has no greedy lexeme fallback" in entry.unavailable
    assert "\n" not in entry.unavailable


def test_an_unknown_case_is_raised() -> None:
    with pytest.raises(UnknownNameError, match="did you mean json-enum"):
        run(Configuration("json-enun", "llama-spm", "baseline"))


@pytest.mark.parametrize(
    ("configuration", "why"),
    [
        (Configuration("json-enum", "llama-smp", "baseline"), "did you mean llama-spm"),
        (Configuration("json-enum", "llama-spm", "base"), "did you mean baseline"),
        (Configuration("json-enum", "llama-spm", "baseline", "weel"), "did you mean wheel"),
    ],
)
def test_other_unknown_names_are_reasons(configuration: Configuration, why: str) -> None:
    (entry,) = run(configuration)
    assert why in (entry.unavailable or "")


def test_a_vocab_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"nothing")
    (entry,) = run(Configuration("json-enum", str(path), "baseline"))
    assert entry.unavailable is not None
    assert str(path) in entry.unavailable


def test_a_vocab_that_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vocabs").mkdir()
    (tmp_path / "grammars").mkdir()
    (tmp_path / "vocabs" / "vocabs.toml").write_text((ROOT / "vocabs" / "vocabs.toml").read_text())
    subject = case_file.load("json-enum")
    monkeypatch.setenv("LLGBENCH_ROOT", str(tmp_path))
    wanted = Configuration("json-enum", "llama-spm", "baseline")
    (entry,) = run(wanted, cases={"json-enum": subject})
    assert entry.unavailable == "vocab llama-spm is not fetched; run: llgbench vocab fetch"


def test_a_vocab_that_cannot_spell_the_texts() -> None:
    wanted = [Configuration("github-workflow", "bert-bge", v) for v in DEFAULT_VARIANTS]
    entries = run(*wanted)
    assert [e.configuration for e in entries] == wanted
    assert all("vocab bert-bge has no token for byte" in (e.unavailable or "") for e in entries)


def test_a_grammar_that_does_not_compile() -> None:
    subject = Case("bad", "lark", "start: nowhere", ROOT, "", (Text("a", b"a"),))
    (entry,) = run(Configuration("bad", "llama-spm", "baseline"), cases={"bad": subject})
    assert entry.unavailable is not None
    assert entry.unavailable.startswith("does not compile: ")
    assert "\n" not in entry.unavailable


def test_cases_of_the_callers_own() -> None:
    subject = Case("mine", "lark", 'start: "ab"', ROOT, "", (Text("a", b"ab", Outcome()),))
    (entry,) = run(Configuration("mine", "llama-spm", "greedy_tokenize"), cases={"mine": subject})
    assert entry.verdict["label"] == "right"
    assert entry.facts["case_digest"] == subject.digest


def test_a_case_without_texts() -> None:
    subject = Case("mine", "lark", 'start: "ab"', ROOT, "", ())
    (entry,) = run(Configuration("mine", "llama-spm", "greedy_tokenize"), cases={"mine": subject})
    assert entry.verdict["label"] == "not judged"
    assert entry.samples["cold_mask"] == []


def test_masks_of_right_variants_agree() -> None:
    wanted = [
        Configuration("json-enum", "deepseek-coder", v) for v in ("token_to_piece", "sentinel")
    ]
    one, other = run(*wanted)
    for a, b in zip(one.samples["mask_hash"], other.samples["mask_hash"], strict=True):
        assert a.tolist() == b.tolist()


# ---- what a worker does not survive ----

GOOD = Configuration("listed", "llama-spm", "greedy_tokenize", "wheel")


@pytest.mark.parametrize(
    ("function", "body", "why"),
    [
        ("llg_matcher_compute_mask", "abort();", "while 'listed' was judged: killed by SIGABRT"),
        ("llg_new_matcher", "*(volatile int *)8 = 1;", "was judged: killed by SIGSEGV"),
        ("llg_new_tokenizer", "_exit(3);", "while the tokenizer was built: ended with status 3"),
        (
            # The judgement resets nothing: this is reached in a replay.
            "llg_matcher_reset", 'write(2, "it broke\\n", 9); abort();',
            "while 'listed' was replayed: it broke (killed by SIGABRT)",
        ),
        (
            "llg_new_matcher", "for (;;) pause();",
            "while 'listed' was judged: no result within 8 s (--time-limit)",
        ),
        (
            "llg_new_matcher",
            "for (;;) { char *p = malloc(1 << 20);"
            ' if (!p) { write(2, "bad_alloc\\n", 10); abort(); }'
            " for (int i = 0; i < 1 << 20; i += 4096) p[i] = 1; }",
            "bad_alloc (killed by SIGABRT); the limit is 1500 MiB (--memory-limit)",
        ),
    ],
)  # fmt: skip
def test_what_kills_a_worker_is_one_row_and_the_others_go_on(
    tmp_path: Path, function: str, body: str, why: str
) -> None:
    engine = faulty_engine.build(tmp_path, function, body)
    wanted = [
        GOOD,
        Configuration("listed", "llama-spm", "greedy_tokenize", str(engine)),
        Configuration("ab-abc", "llama-spm", "greedy_tokenize", "wheel"),
    ]
    limits = Limits(8.0 if "pause" in body else 60.0, 1500)
    entries = {e.configuration: e for e in supervisor.run(wanted, ROUNDS, Tally(), limits=limits)}
    assert entries.keys() == set(wanted)
    bad = entries.pop(wanted[1])
    assert why in (bad.unavailable or "")
    assert "\n" not in (bad.unavailable or "")
    for entry in entries.values():
        assert entry.unavailable is None
        texts = entry.facts["texts"]
        assert len(entry.samples["cold_mask"]) == ROUNDS.cold * len(texts)
        assert len(entry.samples["mask_hash"]) == len(texts)


def test_a_tokenizer_that_kills_is_tried_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    engine = faulty_engine.build(
        tmp_path, "llg_new_tokenizer",
        f'FILE *f = fopen("{log}", "a"); fputs("x", f); fclose(f); abort();',
    )  # fmt: skip
    wanted = [
        Configuration(name, "llama-spm", "greedy_tokenize", str(engine))
        for name in ("listed", "ab-abc", "json-enum")
    ]
    entries = run(*wanted)
    assert all("while the tokenizer was built" in (e.unavailable or "") for e in entries)
    assert log.read_text() == "x"


def test_a_vocabulary_that_kills_llama_cpp_does_not_kill_the_run(tmp_path: Path) -> None:
    twice = write(tmp_path / "twice.gguf", [*BYTES, b"on", b"on"])
    wanted = [Configuration("listed", str(twice), v) for v in DEFAULT_VARIANTS[:3]]
    entries = {e.configuration: e for e in run(*wanted, GOOD)}
    for configuration in wanted:
        reason = entries[configuration].unavailable
        assert reason == "llama.cpp: token 'on' is listed twice (256 and 257)"
    assert entries[GOOD].unavailable is None


def test_a_crash_in_compiling_is_a_row() -> None:
    # Nested definitions overflow the stack of the engine's compiler.
    rules = "\n".join(f"r{n}: r{n + 1}" for n in range(3000))
    deep = Case("deep", "lark", f'start: r0\n{rules}\nr3000: "a"\n', ROOT, "", (Text("a", b"a"),))
    entries = run(Configuration("deep", "llama-spm", "greedy_tokenize"), GOOD, cases={"deep": deep})
    by_case = {e.configuration.case: e for e in entries}
    assert "killed by SIGSEGV" in (by_case["deep"].unavailable or "")
    assert by_case["listed"].unavailable is None


class Notes:
    """A journal in memory, which can stop a run at any message, as a kill would."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.kept: list[Kept] = []
        self.added = 0
        self._stop_after = stop_after

    def begin(self, header: Header) -> list[Kept]:
        return list(self.kept)

    def add(self, message: Kept) -> None:
        if self._stop_after is not None and self.added == self._stop_after:
            raise KeyboardInterrupt
        self.kept.append(message)
        self.added += 1

    def clear(self) -> None:
        self.kept.clear()


def test_a_run_continues_after_each_text_and_round() -> None:
    wanted = [GOOD, Configuration("listed", "llama-spm", "token_to_piece", "wheel")]
    texts = len(case_file.load("listed").texts)
    whole = Notes()
    expected = {e.configuration: e for e in journalled(wanted, whole)}
    steps = len(wanted) * texts + ROUNDS.cold * texts
    assert whole.added == steps

    notes = Notes(stop_after=1)
    runs = 0
    entries: list[Entry] = []
    while not entries:
        runs += 1
        assert runs <= steps + 1, "it makes no progress"
        notes.added = 0
        try:
            entries = journalled(wanted, notes)
        except KeyboardInterrupt:
            assert len(notes.kept) == runs  # one more each time
    assert {e.configuration for e in entries} == expected.keys()
    for entry in entries:
        other = expected[entry.configuration]
        assert entry.verdict["label"] == other.verdict["label"]
        for name in TIMES:
            assert [len(a) for a in entry.samples[name]] == [len(a) for a in other.samples[name]]
        for one, same in zip(entry.samples["mask_hash"], other.samples["mask_hash"], strict=True):
            assert one.tolist() == same.tolist()


def journalled(wanted: list[Configuration], notes: Notes) -> list[Entry]:
    return list(supervisor.run(wanted, ROUNDS, Tally(), journal=notes))


def test_units_come_in_the_order_they_are_measured() -> None:
    notes = Notes()
    kept: list[Kept] = []
    notes.clear = lambda: kept.extend(notes.kept)  # type: ignore[method-assign]
    journalled([GOOD], notes)
    texts = len(case_file.load("listed").texts)
    assert [m.text for m in kept if isinstance(m, Judged)] == list(range(texts))
    assert [m.unit for m in kept if isinstance(m, Measured)] == [
        Unit(number, text) for number in range(ROUNDS.cold) for text in range(texts)
    ]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_killed_from_outside_is_replaced_or_reported(number: signal.Signals) -> None:
    wanted = [GOOD, Configuration("ab-abc", "llama-spm", "greedy_tokenize", "wheel")]
    entries = []
    for entry in supervisor.run(wanted, ROUNDS, Tally(), limits=Limits(5.0, 4000)):
        entries.append(entry)
        if len(entries) == 1:  # the worker is idle, or has begun with the next case
            for worker in workers():
                os.kill(worker, number)
    assert len(entries) == 2
    assert entries[0].unavailable is None
    reason = entries[1].unavailable
    assert reason is None or "SIGKILL" in reason or "--time-limit" in reason


def workers() -> Iterator[int]:
    """Return the workers of this process."""
    done = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-f", "llgbench.measure.worker"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return map(int, done.stdout.split())
