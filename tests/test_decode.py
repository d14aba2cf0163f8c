"""The decode loop: what is committed, what is dropped, what the clocks hold."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faulty_engine
import numpy as np
import pytest
from conftest import Lab
from test_plots import assert_readable

from llgbench.asv import decode_suite
from llgbench.asv.cells import row as row_of
from llgbench.commands import decode as command
from llgbench.decode import loop as decode
from llgbench.decode import measurement, plan, recording, summary
from llgbench.decode.loop import Run
from llgbench.decode.modes import MODES
from llgbench.decode.plan import Plan
from llgbench.errors import GrammarError, InputError, ModelError, RecordError
from llgbench.inputs import case_file
from llgbench.isolated import Limits
from llgbench.llama import model, sampler, synthetic
from llgbench.llama.model import Context, Model
from llgbench.llama.synthetic import synthesize
from llgbench.measure.replay import with_end
from llgbench.records.record import Record
from llgbench.report import decode as report_decode
from llgbench.report import document

SPM, BPE = "llama-spm", "llama-bpe"
TEXT = b'{"colour": "umber", "count": 7}'


@pytest.fixture(scope="module")
def models(lab: Lab) -> Iterator[dict[str, Model]]:
    opened = {n: Model(synthesize("nano", lab.vocab(n)), "cpu", "nano") for n in (SPM, BPE)}
    yield opened
    for one in opened.values():
        one.close()


@pytest.fixture(scope="module")
def contexts(models: dict[str, Model]) -> Iterator[dict[str, Context]]:
    # One thread: two that wait for each other crawl where the cores are shared.
    opened = {name: Context(one, 256, 4, threads=1) for name, one in models.items()}
    yield opened
    for one in opened.values():
        one.close()


def run(
    lab: Lab, contexts: dict[str, Context], *, vocab: str = SPM, of: str = "greedy_tokenize",
    text: bytes = TEXT, subject: str = "json-enum", mode: str = "mask-first", free: bool = False,
    **plan: Any,
) -> Run:  # fmt: skip
    tokenizer = lab.tokenizer(vocab, of)
    trace = None if free else with_end(lab.vocab(vocab).trace(text), tokenizer)
    wanted = Plan(free=free, **plan)
    grammar = case_file.load(subject).lark()
    return decode.run(contexts[vocab], tokenizer, grammar, trace, wanted, MODES[mode])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("vocab", [SPM, BPE])
@pytest.mark.parametrize("agree", [False, True])
def test_the_trace_is_committed_whatever_was_sampled(
    lab: Lab, contexts: dict[str, Context], vocab: str, mode: str, agree: bool
) -> None:
    done = run(lab, contexts, vocab=vocab, mode=mode, agree=agree)
    tokens = with_end(lab.vocab(vocab).trace(TEXT), lab.tokenizer(vocab, "greedy_tokenize"))
    assert [t.tolist() for t in done.committed] == [tokens.tolist()]
    assert (done.drops, done.errors, done.error, done.lost_at) == (0, 0, "", None)
    assert int(done.steps["n_committed"].sum()) == len(tokens)
    assert int(done.steps["n_refused"].sum()) == 0
    if mode != "forced":
        assert len(done.steps) == len(tokens)
        assert np.array_equal(done.steps["n_batch"], np.ones(len(tokens)))


def test_unconstrained_commits_the_same(lab: Lab, contexts: dict[str, Context]) -> None:
    trace = lab.vocab(SPM).trace(TEXT)
    done = decode.run(contexts[SPM], None, "", trace, Plan())
    assert done.committed[0].tolist() == trace.tolist()
    for name in ("mask_ns", "apply_ns", "n_constrained"):
        assert int(done.steps[name].sum()) == 0
    assert np.array_equal(done.sound, done.steps)


def test_a_step_is_its_parts_and_a_little_more(lab: Lab, contexts: dict[str, Context]) -> None:
    for mode in MODES:
        steps = run(lab, contexts, mode=mode).steps
        hidden = "mask" if mode == "overlap" else ""
        parts = sum(steps[f"{n}_ns"].astype(np.int64) for n in plan.PARTS if n != hidden)
        # Each clock is rounded to a nanosecond by itself.
        assert (steps["wall_ns"].astype(np.int64) - parts >= -len(plan.PARTS)).all()
        assert (steps["decode_ns"][steps["n_batch"] > 0] > 0).all()


def test_forced_tokens_go_in_one_batch(lab: Lab, contexts: dict[str, Context]) -> None:
    text = case_file.load("forced-literal").texts[0].data
    plain = run(lab, contexts, vocab=BPE, text=text, subject="forced-literal")
    forced = run(lab, contexts, vocab=BPE, text=text, subject="forced-literal", mode="forced")
    assert forced.committed[0].tolist() == plain.committed[0].tolist()
    assert len(forced.steps) < len(plain.steps)
    n = int(forced.steps["n_forced"].sum())
    assert n > 0
    assert int(forced.steps["n_batch"].max()) > 1
    # All of them are in the first step, and it counts though the grammar ends with it.
    assert len(forced.sound) == len(forced.steps)
    # Without a tokenize_fn nothing is forced: what the greedy path loses.
    greedy = run(lab, contexts, vocab=SPM, text=text, subject="forced-literal", mode="forced")
    assert int(greedy.steps["n_forced"].sum()) == 0


@pytest.mark.parametrize("mode", ["sample-first", "validate-first"])
def test_a_model_that_agrees_never_misses(
    lab: Lab, contexts: dict[str, Context], mode: str
) -> None:
    # The end token after a grammar that has ended is not llguidance's to validate.
    agreeing = run(lab, contexts, mode=mode, agree=True).sound
    assert int(agreeing["n_missed"].sum()) == 0
    masks = agreeing["mask_ns"] > 0
    # llama.cpp looks the sampled token up in a whole mask; validating needs none.
    assert bool(masks.all()) == (mode == "sample-first")
    assert bool(masks.any()) == (mode == "sample-first")
    random = run(lab, contexts, mode=mode)
    assert int(random.steps["n_missed"].sum()) > 0


@pytest.mark.parametrize("sequences", [1, 2, 4])
@pytest.mark.parametrize("mode", ["mask-first", "overlap", "forced"])
def test_sequences_go_in_one_batch(
    lab: Lab, contexts: dict[str, Context], sequences: int, mode: str
) -> None:
    done = run(lab, contexts, vocab=BPE, mode=mode, sequences=sequences)
    assert len(done.committed) == len(done.compile_ns) == sequences
    assert len({tuple(t.tolist()) for t in done.committed}) == 1
    assert int(done.steps["n_batch"][0]) >= sequences
    assert (done.drops, done.errors) == (0, 0)


def test_a_wrong_bridge_drops_the_grammar_and_says_so(
    lab: Lab, contexts: dict[str, Context]
) -> None:
    text = case_file.load("forced-literal").texts[0].data
    done = run(lab, contexts, of="baseline", text=text, subject="forced-literal")
    assert done.drops == 1
    assert done.errors >= 1
    assert done.error
    assert done.lost_at is not None
    assert len(done.sound) <= done.lost_at < len(done.steps)
    # The loop goes on all the same.
    assert len(done.committed[0]) == len(done.steps)


@pytest.mark.parametrize("selection", sampler.SELECTIONS)
def test_what_is_sampled_freely_is_checked(
    lab: Lab, contexts: dict[str, Context], selection: sampler.Selection
) -> None:
    done = run(lab, contexts, subject="forced-skeleton", free=True, selection=selection,
               sequences=2, max_tokens=100)  # fmt: skip
    vocab = lab.vocab(SPM)
    for tokens in done.committed:
        found = decode.check(
            lab.engine, vocab, case_file.load("forced-skeleton"), _variant("greedy_tokenize"),
            tokens, vocab.eos,
        )  # fmt: skip
        assert found == "complete"
        assert tokens[-1] == vocab.eos


def test_the_same_seed_draws_the_same(lab: Lab, contexts: dict[str, Context]) -> None:
    a, b, c = (
        run(lab, contexts, subject="forced-skeleton", free=True, selection="dist", seed=seed,
            max_tokens=100)
        for seed in (5, 5, 6)
    )  # fmt: skip
    assert a.committed[0].tolist() == b.committed[0].tolist()
    assert a.committed[0].tolist() != c.committed[0].tolist()


@pytest.mark.parametrize(
    ("text", "ended", "expected"),
    [
        (b'{"colour":"umber","count":7}', True, "complete"),
        (b'{"colour":"umb', False, "unfinished"),
        (b'{"colour":"umb', True, "wrong at byte 14"),
        (b'{" colour', False, "wrong at byte 2"),
    ],
)
def test_check_reads_real_bytes(lab: Lab, text: bytes, ended: bool, expected: str) -> None:
    vocab = lab.vocab(SPM)
    tokens = vocab.trace(text)
    if ended:
        tokens = np.append(tokens, np.uint32(vocab.eos))
    found = decode.check(
        lab.engine, vocab, case_file.load("json-enum"), _variant("baseline"), tokens, vocab.eos
    )
    assert found.startswith(expected)


def _variant(name: str) -> Any:
    from llgbench.inputs.variant import get

    return get(name)


def test_bad_plans_are_refused(lab: Lab, contexts: dict[str, Context]) -> None:
    with pytest.raises(InputError, match="1 to 256"):
        Plan(sequences=257)
    with pytest.raises(InputError, match="--agree needs a trace"):
        Plan(free=True, agree=True)
    with pytest.raises(InputError, match="--context"):
        run(lab, contexts, text=TEXT * 100, subject="json-any")
    with pytest.raises(GrammarError):
        decode.run(contexts[SPM], lab.tokenizer(SPM, "baseline"), "start: (",
                   lab.vocab(SPM).trace(TEXT), Plan())  # fmt: skip


def test_only_texts_of_the_language_are_decoded() -> None:
    assert {t.name for t in measurement.decodable(case_file.load("json-enum"))} == {
        "ok", "ok-compact", "other-compact",
    }  # fmt: skip
    # Rejected by the stock lexer, and yet the text the fallback is there for.
    assert measurement.decodable(case_file.load("listed"))


@pytest.fixture(scope="module")
def recorded(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Path]:
    folder = tmp_path_factory.mktemp("results")
    request = recording.Request(
        ("json-enum",), (SPM,), ("token_to_piece", "greedy_tokenize"),
        modes=("mask-first", "overlap"), sequences=(1, 2), plan=Plan(rounds=2), threads=1,
    )  # fmt: skip
    return recording.record(request, folder), folder


def test_a_run_is_a_record_beside_the_others(recorded: tuple[Record, Path]) -> None:
    record, folder = recorded
    assert record.path.parent == folder / "records" / "decode"
    assert record.complete
    assert record.provenance["decode"]["shape"] == "nano"
    assert len(record.entries) == 2 * (1 + 2 * 2)
    for entry in record.entries:
        facts = entry.facts
        assert facts["kind"] == "decode"
        assert facts["model"]["label"] == "synthetic nano"
        assert facts["model"]["device"] == {"kind": "cpu"}
        assert len(entry.samples["wall"]) == 2 * len(facts["texts"])
        if entry.configuration.variant == "greedy_tokenize":
            assert summary.verdict(entry) == "right"
        if entry.configuration.variant == "token_to_piece":
            assert "drops the grammar in" in summary.verdict(entry)


def test_the_summary_adds_up(recorded: tuple[Record, Path]) -> None:
    for entry in recorded[0].entries:
        found = summary.summarize(entry)
        if found is None:
            continue
        assert sum(found.parts.values()) == pytest.approx(found.wall)
        assert 0 <= found.share < 1
        assert 0 <= found.overhead < 1
        assert (found.hidden_mask > 0) == (entry.facts["mode"] == "overlap")


def test_the_report_has_a_section_and_a_picture(
    recorded: tuple[Record, Path], tmp_path: Path
) -> None:
    record, folder = recorded
    found = report_decode.latest(folder)
    assert found is not None
    assert found.path == record.path
    text = report_decode.write(record, tmp_path)
    assert "synthetic nano (random weights)" in text
    assert f"]({report_decode.PICTURE})" in text
    assert (tmp_path / report_decode.PICTURE).is_file()
    figure = report_decode.picture(record)
    assert figure is not None
    assert_readable(figure)
    (panel,) = figure.axes
    assert panel.get_title(loc="left") == f"json-enum on {SPM}"
    assert len(panel.get_yticklabels()) == len(record.entries)
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1
    for row in report_decode.rows(record):
        # A wrong mask's time makes no ratio.
        right = row["variant"] == "greedy_tokenize"
        assert (row["of unconstrained %"] is not None) == right


def test_another_vocabs_model_is_refused_before_a_record_is_begun(
    lab: Lab, models: dict[str, Model], tmp_path: Path
) -> None:
    request = recording.Request(("json-enum",), (BPE,), model=models[SPM].path, threads=1)
    with pytest.raises(ModelError, match="32000 tokens"):
        recording.record(request, tmp_path)
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_the_commands_choices_are_the_packages() -> None:
    assert command.SELECTIONS == sampler.SELECTIONS
    assert set(command.SHAPES) == set(synthetic.SHAPES)
    assert command.MAX_THREADS == model.MAX_THREADS


def test_asv_asks_for_what_its_axes_name() -> None:
    for vocab in decode_suite.VOCABS:
        asked = decode_suite.request(vocab)
        assert (asked.vocabs, asked.modes) == ((vocab,), ("mask-first",))
        assert list(asked.variants) == decode_suite.VARIANTS
    assert list(decode_suite.modes_request().modes) == decode_suite.MODES


def test_asv_times_both_passes() -> None:
    for tokens in decode_suite.TOKENS:
        for allowed in decode_suite.ALLOWED:
            found = decode_suite.apply(tokens, allowed, rounds=2)
            for metric in ("ours", "of_llama_cpp"):
                value = found.get(metric)
                assert isinstance(value, float)
                assert value > 0


def test_asv_says_why_there_is_no_value(recorded: tuple[Record, Path]) -> None:
    values = decode_suite.values(recorded[0].entries)
    step = row_of(values, f"{SPM} | greedy_tokenize | mask-first").get("step")
    assert isinstance(step, float)
    assert step > 0
    with pytest.raises(NotImplementedError, match="drops the grammar"):
        row_of(values, f"{SPM} | token_to_piece | mask-first")
    with pytest.raises(NotImplementedError, match="not measured"):
        row_of(values, "none")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "none.gguf"], "no such model"),
        (["--vocab", "lama-spm"], "did you mean llama-spm"),
        (["--case", "json-enun"], "did you mean json-enum"),
        (["--variant", "base"], "unknown variant"),
        (["--mode", "none"], "--mode"),
        (["--sequences", "257"], "--sequences"),
        (["--vocab", SPM, "--context", "5", "--threads", "1"], "--context"),
        (["--free", "--agree"], "--agree"),
        (["--device", "cuda", "--vocab", SPM], "--device cuda"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(
    lab: Lab, arguments: list[str], message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    from llama_cpp import llama_cpp as c

    from llgbench.commands import cli

    if "cuda" in arguments and c.llama_supports_gpu_offload():
        pytest.skip("this llama.cpp has GPU offload")
    monkeypatch.setattr(sys, "argv", ["llgbench", "decode", "--results", str(tmp_path), *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_the_command_prints_a_table_and_json(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from llgbench.commands import cli

    arguments = ["decode", "--vocab", SPM, "--case", "json-enum", "--variant", "greedy_tokenize"]
    arguments += ["--rounds", "1", "--threads", "1", "--results", str(tmp_path), "--json"]
    monkeypatch.setattr(sys, "argv", ["llgbench", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0
    found = json.loads(capfd.readouterr().out)
    assert [e["variant"] for e in found["entries"]] == ["unconstrained", "greedy_tokenize"]
    assert found["entries"][1]["verdict"] == "right"


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e["facts"].pop("plan"),
        lambda e: e["facts"]["plan"].update(sequences=0),
        lambda e: e["facts"].update(model="x"),
        lambda e: e["facts"].update(kind=""),
        lambda e: e["facts"].update(lost_at=-1),
        lambda e: e["samples"].pop("mask"),
        lambda e: e["samples"].update(wall=e["samples"]["compile"]),
        lambda e: e["verdict"].update(label=None),
    ],
)
def test_a_damaged_decode_record_is_refused(
    recorded: tuple[Record, Path], tmp_path: Path, change: Any
) -> None:
    path = recorded[0].path
    lines = path.read_text().splitlines()
    content = json.loads(lines[2])
    change(content)
    lines[2] = json.dumps(content)
    folder = tmp_path / "records" / recording.FOLDER
    folder.mkdir(parents=True)
    (folder / path.name).write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(RecordError, match="damaged") as caught:
        report_decode.latest(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_decode_record_is_no_record_of_replays(recorded: tuple[Record, Path]) -> None:
    with pytest.raises(RecordError, match="not a record of llgbench run"):
        document.markdown([recorded[0]])


# ---- what a worker does not survive --------------------------------------------------------------


def test_a_case_that_kills_the_engine_is_a_row_and_the_others_go_on(
    lab: Lab, tmp_path: Path
) -> None:
    library = faulty_engine.build(
        tmp_path, "llg_new_matcher", 'if (c && __builtin_strstr(c, "umber")) abort();'
    )
    request = recording.Request(
        ("json-enum", "json-tool-call"), (SPM,), ("greedy_tokenize",), engine=str(library),
        plan=Plan(rounds=1), threads=1,
    )  # fmt: skip
    made = recording.record(request, tmp_path)
    dead, *others = made.entries
    assert dead.configuration.case == "json-enum"
    assert "SIGABRT" in (dead.unavailable or "")
    assert [e.configuration.case for e in others] == ["json-tool-call"] * 2
    assert all(e.unavailable is None for e in others)
    assert len(report_decode.rows(made)) == 3


def test_a_variant_that_kills_the_engine_leaves_the_others_in_turn(
    lab: Lab, tmp_path: Path
) -> None:
    # The field of LlgTokenizerInit that holds tokenize_fn, which greedy_tokenize has not here.
    library = faulty_engine.build(tmp_path, "llg_new_tokenizer", "if (((void **)a)[5]) abort();")
    request = recording.Request(
        ("json-enum",), (SPM,), ("token_to_piece", "greedy_tokenize"), engine=str(library),
        plan=Plan(rounds=2), threads=1,
    )  # fmt: skip
    made = recording.record(request, tmp_path)
    found = {e.configuration.variant: e for e in made.entries}
    assert list(found) == ["unconstrained", "greedy_tokenize", "token_to_piece"]
    assert "SIGABRT" in (found["token_to_piece"].unavailable or "")
    assert found["greedy_tokenize"].facts["runs"] == 2 * len(
        found["greedy_tokenize"].facts["texts"]
    )


def test_a_run_in_which_nothing_could_be_measured_leaves_nothing(tmp_path: Path) -> None:
    request = recording.Request(("json-enum",), ("bert-bge",), ("greedy_tokenize",))
    made = recording.record(request, tmp_path / "new")
    assert made.entries
    assert all(entry.unavailable for entry in made.entries)
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_dies_as_it_loads_is_one_line(tmp_path: Path) -> None:
    library = faulty_engine.build(tmp_path, "llg_get_version", "abort();")
    done = subprocess.run(
        [sys.executable, "-m", "llgbench.commands.cli", "decode", "--engine", library,
         "--vocab", SPM, "--results", tmp_path / "new"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == f"llgbench: {library}: cannot serve as an engine: killed by SIGABRT\n"
    assert not (tmp_path / "new").exists()


def test_an_engine_that_hangs_is_a_row(lab: Lab, tmp_path: Path) -> None:
    library = faulty_engine.build(tmp_path, "llg_new_matcher", "for (;;) pause();")
    request = recording.Request(
        ("json-enum",), (SPM,), ("greedy_tokenize",), engine=str(library), plan=Plan(rounds=1),
        threads=1, limits=Limits(10, 8000),
    )  # fmt: skip
    made = recording.record(request, tmp_path)
    assert [e.unavailable for e in made.entries] == ["ended after its time limit of 10 s"]
