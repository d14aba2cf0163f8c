from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Lab

from llgbench import runner
from llgbench.case import Case, Outcome, Text
from llgbench.configuration import Configuration
from llgbench.errors import UnavailableError, UnknownNameError, VocabError
from llgbench.records import Entry
from llgbench.replay import Rounds
from llgbench.runner import Tally, Workbench
from llgbench.variant import DEFAULT_VARIANTS, get

ROUNDS = Rounds(cold=2, warm=2, cached=1)
TIMES = (
    "cold_mask", "cold_consume", "warm_mask", "warm_consume", "cached_mask",
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("lab")


def run(*configurations: Configuration, cases: dict[str, Case] | None = None) -> list[Entry]:
    return list(runner.run(configurations, ROUNDS, Tally(), cases))


def test_a_run_from_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLGBENCH_CACHE", str(tmp_path))  # no engine is built there
    wanted = [Configuration("json-enum", "llama-spm", v) for v in (*DEFAULT_VARIANTS, "sentinel")]
    tally = Tally()
    lines: list[str] = []
    entries = list(runner.run(wanted, ROUNDS, tally, progress=lines.append))
    assert lines == ["json-enum on llama-spm"]
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
    entries = list(runner.run(wanted, ROUNDS, Tally(), progress=lines.append))
    assert lines == ["listed on bert-bge", "listed on llama-spm", "ab-abc on llama-spm"]
    assert len(entries) == 3


def test_a_named_engine_without_the_fallback() -> None:
    (entry,) = run(Configuration("listed", "llama-spm", "greedy_lexeme_fallback", "wheel"))
    assert entry.unavailable is not None
    assert "has no greedy lexeme fallback" in entry.unavailable
    assert "\n" not in entry.unavailable


def test_unknown_names_are_raised() -> None:
    for configuration, why in (
        (Configuration("json-enum", "llama-smp", "baseline"), "did you mean llama-spm"),
        (Configuration("json-enun", "llama-spm", "baseline"), "did you mean json-enum"),
        (Configuration("json-enum", "llama-spm", "base"), "did you mean baseline"),
        (Configuration("json-enum", "llama-spm", "baseline", "weel"), "did you mean wheel"),
    ):
        with pytest.raises(UnknownNameError, match=why):
            run(configuration)


def test_a_vocab_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"nothing")
    with pytest.raises(VocabError):
        run(Configuration("json-enum", str(path), "baseline"))


def test_a_vocab_that_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vocabs").mkdir()
    (tmp_path / "grammars").mkdir()
    (tmp_path / "vocabs" / "vocabs.toml").write_text((ROOT / "vocabs" / "vocabs.toml").read_text())
    monkeypatch.setenv("LLGBENCH_ROOT", str(tmp_path))
    (entry,) = run(Configuration("json-enum", "llama-spm", "baseline"))
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
    assert entry.verdict["label"] == "right"
    assert entry.samples["cold_mask"] == []


def test_a_workbench_builds_each_tokenizer_once(lab: Lab) -> None:
    with Workbench("llama-spm") as bench:
        first = bench.tokenizer(lab.engine, get("baseline"))
        assert bench.tokenizer(lab.engine, get("baseline")) is first
        with pytest.raises(UnavailableError):
            bench.tokenizer(lab.engine, get("greedy_lexeme_fallback"))
    with pytest.raises(ValueError, match="closed"):
        first.matcher('start: "a"')
    with pytest.raises(ValueError, match="closed"):
        bench.vocab.tokenize(b"a")


@pytest.mark.parametrize("variant", ["baseline", "token_to_piece"])
def test_wrong_tokens(lab: Lab, variant: str) -> None:
    found = runner.wrong_tokens(lab.vocab("llama-bpe"), get(variant))
    assert found == (117 if variant == "baseline" else 0)


def test_masks_of_right_variants_agree() -> None:
    wanted = [
        Configuration("json-enum", "deepseek-coder", v) for v in ("token_to_piece", "sentinel")
    ]
    one, other = run(*wanted)
    for a, b in zip(one.samples["mask_hash"], other.samples["mask_hash"], strict=True):
        assert a.tolist() == b.tolist()
