"""The command line as a user meets it: exit statuses, one-line errors, JSON, no traceback."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import faulty_engine
import pytest
from click.testing import CliRunner
from in_process import llgbench
from made_comparison import compared
from made_records import entry, record

from llgbench.commands.cli import cli
from llgbench.compare import comparison
from llgbench.inputs import catalogue
from llgbench.records.record import read


def commands(owner: click.Command, *names: str) -> Iterator[list[str]]:
    """Yield the name of every command, that of the whole first."""
    yield list(names)
    if isinstance(owner, click.Group):
        for name, command in owner.commands.items():
            yield from commands(command, *names, name)


COMMANDS = list(commands(cli))


def refused(*arguments: str | Path, cwd: Path | None = None) -> str:
    """Run what must be refused; return the one line."""
    done = llgbench(*arguments, cwd=cwd)
    assert done.returncode == 2, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("llgbench: ")
    return lines[0]


def test_a_name_that_no_record_can_hold(tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9.gguf"
    for option, value in (("--vocab", path), ("--engine", f"{path}.so"), ("--case", f"{path}/x")):
        line = refused("run", "--case", "listed", option, value, "--results", tmp_path / "results")
        assert "is not UTF-8" in line
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help(command: list[str]) -> None:
    done = CliRunner().invoke(cli, [*command, "--help"], prog_name="llgbench")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"Usage: {' '.join(['llgbench', *command])} ")
    # What it does is said in words.
    assert len(done.stdout.split("\n\n")[1].split()) > 2


def test_help_of_the_installed_command() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("llgbench"), "--help"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "Usage: " in done.stdout
    assert {names[0] for names in COMMANDS if names} <= set(done.stdout.split())


def test_the_figures_of_the_token_tables() -> None:
    done = llgbench("vocab", "table", "llama-spm", "llama-bpe", "gemma-4", "bert-bge", "--json")
    rows = {row["vocab"]: row for row in json.loads(done.stdout)}
    assert [
        (name, rows[name]["differing"], rows[name]["tokens"], rows[name]["lost_space"])
        for name in rows
    ] == [
        ("llama-spm", 16410, 32000, 16395),
        ("llama-bpe", 117, 128256, 117),
        ("gemma-4", 88, 262144, 88),
        ("bert-bge", 5, 30522, 5),
    ]


def test_the_figures_of_check() -> None:
    done = llgbench("check", "--vocab", "llama-spm", "--vocab", "llama-bpe", "--case", "listed",
                    "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    probes = {(p["vocab"], p["variant"]): p for p in found["probes"]}
    assert probes["llama-spm", "baseline"]["spaced"] == 6136
    assert probes["llama-spm", "token_to_piece"]["spaced"] == 0
    assert probes["llama-bpe", "baseline"]["spaced"] == 6
    assert probes["llama-spm", "baseline"]["forced"] == [22172]
    assert probes["llama-spm", "token_to_piece"]["forced"] == [22172]
    assert len(probes["llama-spm", "greedy_tokenize"]["forced"]) == 6
    assert probes["llama-bpe", "greedy_tokenize"]["forced"] == [15339]
    assert not probes["llama-spm", "baseline"]["right"]
    assert probes["llama-spm", "greedy_tokenize"]["right"]
    listed = {(t["text"], t["lexer"]): t["found"] for t in found["texts"]}
    assert listed["listed", "stock"] == "rejected at byte 5"


def test_run_prints_stores_and_reports(tmp_path: Path) -> None:
    arguments = ("run", "--case", "listed", "--case", "json-tool-call", "--vocab", "llama-spm",
                 "--rounds", "1", "--results", tmp_path)  # fmt: skip
    done = llgbench(*arguments)
    assert done.returncode == 0, done.stderr
    assert "wrong: allows" in done.stdout
    again = llgbench(*arguments, "--json")
    rows = json.loads(again.stdout)["configurations"]
    assert [row["variant"] for row in rows[:2]] == ["baseline", "token_to_piece"]
    assert len(list((tmp_path / "records").glob("*.jsonl"))) == 2
    report = llgbench("report", "--results", tmp_path, "--print")
    assert report.returncode == 0, report.stderr
    assert (tmp_path / "report.md").is_file()
    assert "TBM" in (tmp_path / "report.md").read_text()
    tables = llgbench("report", "--results", tmp_path, "--json")
    assert json.loads(tables.stdout)


def test_a_short_text_is_repeated_until_it_has_a_p99(tmp_path: Path) -> None:
    (tmp_path / "g.lark").write_text('start: "on"')
    (tmp_path / "on.txt").write_text("on")
    own = ("run", "--grammar", "g.lark", "--text", "on.txt", "--vocab", "llama-spm", "--variant")
    done = llgbench(*own, "greedy_tokenize", "--results", "results", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["configurations"]
    assert row["steps"] >= 1000
    assert None not in (row["mask p50"], row["mask p99"], row["cached p50"], row["warm p50"])
    short = (*own, "greedy_tokenize", "--seconds", "0.001", "--results", "short")
    assert "--seconds" in llgbench(*short, cwd=tmp_path).stderr


def test_a_text_of_ones_own(tmp_path: Path) -> None:
    """Its special tokens by name, and what is said where the grammar does not have it."""
    (tmp_path / "g.lark").write_text('%llguidance {}\nstart: <s> "on"')
    (tmp_path / "ok.txt").write_text("<s>on")
    (tmp_path / "newline.txt").write_text("<s>on\n")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.json").write_text('{"schema": true, "tests": []}')

    def verdict(*arguments: str) -> str:
        done = llgbench(
            "run", *arguments, "--vocab", "llama-spm", "--variant", "greedy_tokenize", "--rounds",
            "1", "--results", "results", "--json", cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["configurations"][0]["verdict"])

    own = ("--grammar", "g.lark", "--text")
    assert verdict(*own, "ok.txt", "--special-tokens") == "right"
    said = verdict(*own, "newline.txt", "--special-tokens")
    assert said.startswith(
        "refused: text not in the grammar (byte 5): 'newline.txt'; the text ends"
    )
    assert "--special-tokens reads it as the token" in verdict(*own, "ok.txt")
    assert verdict("--maskbench", "none") == "not judged: it has no texts"
    assert "go with --grammar" in refused("run", "--special-tokens")
    assert "--seconds goes with --grammar" in refused("run", "--seconds", "5")
    assert "does not go with --rounds" in refused("run", "--seconds", "5", "--rounds", "2")
    assert "goes with --maskbench" in refused("run", "--text-format", "compact")


def test_doctor_and_lists() -> None:
    for command in (["doctor"], ["vocab", "list"], ["engine", "list"]):
        done = llgbench(*command, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    assert "did you mean llama-bpe" in refused("run", "--vocab", "lama-bpe")
    assert "did you mean listed" in refused("run", "--case", "lsted")
    assert "did you mean baseline" in refused("run", "--case", "listed", "--variant", "basline")
    assert "known: " in refused("run", "--case", "listed", "--engine", "zzz")
    assert "did you mean qwen2" in refused("vocab", "table", "qwen")
    assert "did you mean listed" in refused("check", "--case", "lsted")


def test_bad_options() -> None:
    assert "--help" in refused("run", "--nothing")
    assert "--help" in refused("nothing")
    refused("run", "--rounds", "0")
    refused("run", "--text", "x")
    refused("run", "--grammar", "x")
    refused("run", "--case", "listed", "--grammar", "x", "--text", "y")


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "wheel", "stock", "--threshold", "nan"],
        ["compare", "wheel", "stock", "--threshold", "-0.1"],
        ["compare", "wheel", "stock", "--budget", "inf"],
        ["compare", "wheel", "stock", "--budget", "1e300"],
        ["pr", "wheel", "stock", "--budget", "nan"],
        ["decode", "--threads", "999999999999"],
        ["decode", "--threads", "-1"],
        ["decode", "--context", "1" + "0" * 30],
        ["decode", "--seed", "-1"],
        ["verify", "--seed", "1" + "0" * 30],
    ],
    ids=" ".join,
)
def test_a_number_that_none_can_mean_is_refused(arguments: list[str]) -> None:
    assert f"'{arguments[-2]}'" in refused(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--case", "listed"],
        ["report", "--budget", "20"],
        ["report", "--json", "--print"],
        ["pr", "--from", "x.json", "--case", "listed"],
        ["pr", "--from", "x.json", "--vocab", "llama-spm"],
        ["pr", "--from", "x.json", "--budget", "20"],
        ["pr", "--from", "x.json", "--count"],
        ["pr", "wheel", "stock", "--from", "x.json"],
        ["verify", "--texts", "--json"],
        ["run", "--case", "listed", "--rounds", "2", "--profile", "full"],
        ["run", "--maskbench", "tests", "--profile", "quick"],
        ["decode", "--seed", "7"],
        ["decode", "--free", "--select", "greedy", "--seed", "7"],
        ["overhead", "--results", "x"],
        ["overhead", "--count", "--rounds", "3"],
        ["decode", "--max-tokens", "5"],
        ["decode", "--model", "x.gguf", "--shape", "nano"],
    ],
    ids=" ".join,
)
def test_an_option_without_effect_is_refused(arguments: list[str]) -> None:
    line = refused(*arguments)
    assert any(word in line for word in arguments if word.startswith("--"))


def test_a_section_is_a_command_of_its_own() -> None:
    line = refused("report", "--pr", "a b", "stock")
    assert line.endswith("llgbench pr 'a b' stock")
    for arguments in ([], ["wheel"]):
        assert "give BASE and HEAD, or --from FILE" in refused("pr", *arguments)


def test_a_stored_comparison_is_rendered_again(tmp_path: Path) -> None:
    found = compared()
    file = tmp_path / "stored" / "comparison.json"
    comparison.write(found, file)
    done = llgbench("pr", "--from", file)
    assert done.returncode == 1  # it is slower
    assert done.stdout.startswith("### llgbench: slower\n")
    assert [path.name for path in file.parent.iterdir()] == [file.name]  # nothing is written
    lax = llgbench("pr", "--from", file, "--threshold", "0.5", "--output", tmp_path / "new")
    assert lax.returncode == 0
    assert lax.stdout.startswith("### llgbench: same\n")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"section.md", "comparison.png"}
    assert (tmp_path / "new" / "section.md").read_text().strip() == lax.stdout.strip()
    assert f"picture to attach: {tmp_path / 'new' / 'comparison.png'}" in lax.stderr
    data = json.loads(llgbench("pr", "--from", file, "--json").stdout)
    assert data["verdict"] == "slower"
    assert "was measured with greedy_tokenize" in refused(
        "pr", "--from", file, "--variant", "baseline"
    )
    assert llgbench("pr", "--from", file, "--variant", "greedy_tokenize").returncode == 1
    assert "was measured without it" in refused("pr", "--from", file, "--where-equal")
    assert "not a comparison" in refused("pr", "--from", _json(tmp_path, {"format": "x"}))
    assert "No such file" in refused("pr", "--from", tmp_path / "none.json")


def _json(folder: Path, content: object) -> Path:
    (folder / "x.json").write_text(json.dumps(content))
    return folder / "x.json"


def test_a_gguf_is_a_path_whatever_its_suffix(tmp_path: Path) -> None:
    there = catalogue.vocabs()["llama-spm"].path
    # Its name is one of the catalogue; the model is the file all the same.
    for name in ("weights.bin", "llama-bpe"):
        (tmp_path / name).symlink_to(there)
        line = refused("decode", "--model", name, "--results", "out", cwd=tmp_path)
        assert "llama.cpp does not load it" in line
    done = llgbench("run", "--case", "listed", "--vocab", "weights.bin", "--rounds", "1",
                    "--variant", "greedy_tokenize", "--results", "r", cwd=tmp_path)  # fmt: skip
    assert "weights.bin" in done.stdout
    assert not (tmp_path / "out").exists()


def test_a_file_whose_name_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.gguf")
    (tmp_path / name).symlink_to(catalogue.vocabs()["llama-spm"].path)
    for command in (["decode", "--model", name], ["run", "--vocab", name, "--case", "listed"]):
        line = refused(*command, "--results", "out", cwd=tmp_path)
        assert "caf\\udce9.gguf" in line
        assert "not UTF-8" in line
    assert not (tmp_path / "out").exists()


def test_what_looks_like_markup_is_shown(tmp_path: Path) -> None:
    (tmp_path / "case.toml").write_text(
        'reason = "x"\n[[texts]]\ntext = "[/b]"\nstock = "accept"\nfallback = "accept"\n'
    )
    (tmp_path / "grammar.lark").write_text('start: "[/b]" | "[b]"\n')
    done = llgbench("check", "--case", tmp_path, "--vocab", "llama-spm", "--variant",
                    "greedy_tokenize")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[/b]" in done.stdout


def test_verify_shows_what_was_written_and_no_more() -> None:
    done = llgbench("verify", "--vocab", "llama-spm", "--variant", "greedy_tokenize", "--texts")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())  # the table folds it
    assert "'Constrained decoding leaves this sentence no choice at all.'" in text
    assert "</s>" not in done.stdout


def test_a_stdout_that_cannot_encode_loses_no_measurement(tmp_path: Path) -> None:
    for encoding in ("ascii", "latin-1"):
        done = subprocess.run(
            [sys.executable, "-m", "llgbench.commands.cli", "run", "--case", "listed", "--vocab",
             "llama-spm", "--variant", "greedy_tokenize", "--rounds", "1",
             "--results", str(tmp_path)],
            capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert b"limited" in done.stdout
    assert len(list((tmp_path / "records").glob("*.jsonl"))) == 2


@pytest.mark.parametrize("size", [0, 300, 1000, 3000])
def test_a_full_disk_is_one_line_and_the_run_goes_on_from_there(tmp_path: Path, size: int) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    arguments = ("run", "--case", "listed", "--vocab", "llama-spm", "--rounds", "2",
                 "--results", str(tmp_path / "new" / "r"))  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "llgbench.commands.cli", *arguments],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, text=True,
        preexec_fn=limit,
    )  # fmt: skip
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert "File too large" in line
    assert "Traceback" not in done.stderr
    if size < 1000:  # not even a header
        assert list(tmp_path.iterdir()) == []
    assert llgbench(*arguments).returncode == 0
    [kept] = (tmp_path / "new" / "r" / "records").iterdir()
    assert read(kept).complete


def test_reports_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    record(tmp_path / "records", entry(), entry("token_to_piece"))
    command = [sys.executable, "-m", "llgbench.commands.cli", "report", "--results", str(tmp_path)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in running:
        _, stderr = process.communicate(timeout=120)
        assert (process.returncode, stderr) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} == {"records", "report.md", "tails.png"}


def test_bad_files(tmp_path: Path) -> None:
    good = catalogue.vocabs()["llama-spm"].path.read_bytes()
    (tmp_path / "cut.gguf").write_bytes(good[: len(good) // 2])
    (tmp_path / "ok.lark").write_text('start: "hi"')
    (tmp_path / "ok.txt").write_text("hi")
    (tmp_path / "bad.lark").write_text("start: /[a")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "latin.lark").write_bytes(b'start: "\xe9"')
    (tmp_path / "not.json").write_text('{"not": {"type": "string"}}')
    (tmp_path / "newer.jsonl").write_text('{"format":"llgbench","schema":99,"provenance":{}}\n')
    (tmp_path / "none.jsonl").write_text("nothing\n")
    spm = ("--vocab", "llama-spm")

    def run(*arguments: str) -> str:
        return refused("run", "--results", "out", *arguments, cwd=tmp_path)

    assert "cut.gguf" in run("--grammar", "ok.lark", "--text", "ok.txt", "--vocab", "./cut.gguf")
    assert "bad.lark" in run("--grammar", "bad.lark", "--text", "ok.txt", *spm)
    assert "byte 3" in run("--grammar", "ok.lark", "--text", "latin.txt", *spm)
    assert "latin.lark" in run("--grammar", "latin.lark", "--text", "ok.txt", *spm)
    assert "not" in run("--grammar", "not.json", "--text", "ok.txt", *spm)
    assert "no such" in run("--grammar", "ok.lark", "--text", "none.txt", *spm).lower()
    assert "MaskBench" in run("--maskbench", "nowhere", *spm)
    assert "schema 99" in refused("report", tmp_path / "newer.jsonl")
    assert "none.jsonl" in refused("report", tmp_path / "none.jsonl")
    assert "llgbench run" in refused("report", "--results", tmp_path / "empty")
    (tmp_path / "file").write_text("")
    refused("run", "--case", "listed", *spm, "--results", tmp_path / "file")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_keeps_what_was_measured(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "llgbench.commands.cli", "run", "--vocab", "llama-spm",
               "--case", "listed", "--case", "github-workflow", "--rounds", "3",
               "--variant", "greedy_tokenize", "--results", str(tmp_path / "results")]  # fmt: skip
    root = Path(__file__).resolve().parents[1]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        cwd=root,
        env={**os.environ, "TMPDIR": str(temporary)},
        # A shell's background job ignores SIGINT, and its children with it: a terminal's does not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    folder = tmp_path / "results" / "records"

    def first_case_stored_and_second_begun() -> bool:
        records, journals = list(folder.glob("*.jsonl")), list(folder.glob("*.journal"))
        lines = records[0].read_text().count("\n") if records else 0
        return lines >= 2 and bool(journals) and journals[0].stat().st_size > 1000

    deadline = time.monotonic() + 120
    while not first_case_stored_and_second_begun():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    if number == signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 2
        assert "is kept in" in stderr.splitlines()[-1]
    while list(temporary.iterdir()):  # after SIGKILL another process removes them
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (journal,) = folder.glob("*.journal")
    kept = journal.stat().st_size
    again = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert again.returncode == 0, again.stderr
    assert kept > 1000
    assert "continuing" in again.stderr
    assert [path.suffix for path in folder.iterdir()] == [".jsonl"]


@pytest.mark.usefixtures("_vocabs_here")
def test_a_run_that_is_killed_again_and_again_gets_further(tmp_path: Path) -> None:
    """Tokenizers are what takes long at the start; here each run lives for two of them.

    A run has to build three: one of each variant, and the one that they are judged against.
    """
    engine = faulty_engine.build(
        tmp_path, "llg_new_tokenizer",
        "static int built; if (++built > 2) { kill(getppid(), 9); for (;;) pause(); }",
    )  # fmt: skip
    command = [sys.executable, "-m", "llgbench.commands.cli", "run", "--vocab", "llama-spm",
               "--case", "listed", "--rounds", "2", "--engine", str(engine),
               "--variant", "token_to_piece", "--variant", "greedy_tokenize",
               "--results", str(tmp_path / "results")]  # fmt: skip
    sizes = [0]
    for status in (-signal.SIGKILL, -signal.SIGKILL, 0):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        sizes += [path.stat().st_size for path in tmp_path.rglob("*.journal")]
    assert sizes == sorted(set(sizes))
    assert len(sizes) == 3
    (kept,) = (tmp_path / "results" / "records").iterdir()
    assert read(kept).complete
    assert all(e.unavailable is None for e in read(kept).entries)


def test_nothing_is_coloured_or_cut_in_a_pipe() -> None:
    done = llgbench("vocab", "list")
    assert "\x1b" not in done.stdout
    assert "gemma-4" in done.stdout


@pytest.mark.parametrize("arguments", [["vocab", "list"], ["vocab", "list", "--json"], ["--help"]])
def test_a_full_or_closed_stdout_is_no_difference(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "llgbench.commands.cli", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "No space left on device" in line
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (2, "")


def test_a_name_that_is_no_utf8_is_shown_escaped(tmp_path: Path) -> None:
    line = refused("report", tmp_path / os.fsdecode(b"caf\xe9\x1b[2J.jsonl"))
    assert "caf\\udce9\\x1b[2J.jsonl" in line
