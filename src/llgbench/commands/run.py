"""``llgbench run``: replay, time, judge, store."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llgbench import output
from llgbench.commands import given
from llgbench.commands.options import FiniteFloat, limit_options, limits
from llgbench.errors import InputError
from llgbench.inputs.configuration import Configuration, Profile, grid
from llgbench.output import json_option
from llgbench.shown import microseconds

if TYPE_CHECKING:
    from llgbench.inputs.case import Case
    from llgbench.inputs.maskbench import TextFormat
    from llgbench.measure.rounds import Rounds
    from llgbench.records.entry import Entry
    from llgbench.records.packed import Times
    from llgbench.records.times import Kind, Measure

# What a grammar of one's own is repeated for, at most, per variant.
SECONDS = 10.0

# The columns of the table: kind of replay, measure, and percentile; None is the mean.
_TIMES: dict[str, tuple[Kind, Measure, float | None]] = {
    "mask p50": ("cold", "mask", 50),
    "mask p99": ("cold", "mask", 99),
    "mask max": ("cold", "mask", 100),
    "warm p50": ("warm", "mask", 50),
    "sibling p50": ("sibling", "mask", 50),
    "cached p50": ("cached", "mask", 50),
    "consume p50": ("cold", "consume", 50),
    "TTFM avg": ("cold", "ttfm", None),
}


@click.command("run")
@click.option("--vocab", "vocabs", multiple=True, help="A vocab by name, or a GGUF file; repeat.")
@click.option("--case", "case_names", multiple=True, help="A case by name, or its folder; repeat.")
@click.option("--variant", "variants", multiple=True, help="Default: the four variants.")
@click.option("--engine", default="default", help="NAME, pypi:VERSION, git:PATH@REV, or a library.")
@click.option("--rounds", type=click.IntRange(1, 10_000), help="Cold replays; twice as many warm.")
@click.option(
    "--seconds",
    type=FiniteFloat(min=0, max=86_400),
    default=SECONDS,
    show_default=True,
    help="With --grammar: repeat until a p99 can be printed, at most so long per variant.",
)
@click.option("--profile", type=click.Choice(["quick", "full"]), help="The suite's own grid.")
@click.option("--maskbench", type=click.Path(path_type=Path), help="A folder of MaskBench files.")
@click.option(
    "--grammar", type=click.Path(path_type=Path), help="Your grammar: .lark, or a schema."
)
@click.option(
    "--text", "texts", multiple=True, type=click.Path(path_type=Path), help="A text for it; repeat."
)
@click.option(
    "--special-tokens", is_flag=True, help="Names of special tokens in a --text are the tokens."
)
@click.option(
    "--text-format",
    type=click.Choice(["maskbench", "compact", "indent2"]),
    help="How instances of --maskbench are written; default: as MaskBench's runner does.",
)
@click.option("--results", type=click.Path(path_type=Path), help="Default: results/.")
@limit_options("Most seconds for one step, such as one replay of one text; default 300.")
@click.option("--retry", is_flag=True, help="Try again what a killed run found not available.")
@json_option
def run(
    vocabs: tuple[str, ...],
    case_names: tuple[str, ...],
    variants: tuple[str, ...],
    engine: str,
    rounds: int | None,
    seconds: float,
    profile: Profile | None,
    maskbench: Path | None,
    grammar: Path | None,
    texts: tuple[Path, ...],
    special_tokens: bool,
    text_format: TextFormat | None,
    results: Path | None,
    time_limit: float | None,
    memory_limit: int | None,
    retry: bool,
    as_json: bool,
) -> None:
    """Replay cases under variants; print the times with their verdicts, store the raw samples.

    Without --case, --maskbench or --grammar the profile's grid runs (quick by default). A run
    that was killed continues where it stopped when the same command is started again.

    Vocabularies and engines are loaded in processes of their own. Where one of these crashes,
    hangs, or needs too much memory, that configuration is not available, and the others go on.

    \b
    Examples:
      llgbench run --profile quick
      llgbench run --case github-workflow --vocab llama-bpe --variant greedy_tokenize
      llgbench run --grammar my.lark --text ok.txt --vocab ./my-model.gguf
      llgbench run --grammar my.lark --text ok.txt --seconds 60
      llgbench run --grammar tool.lark --text call.txt --special-tokens --vocab llama-bpe
      llgbench run --maskbench maskbench/data --vocab llama-bpe --variant token_to_piece
    """
    from llgbench.inputs.variant import DEFAULT_VARIANTS
    from llgbench.measure import recording, supervisor
    from llgbench.measure.recording import OWN
    from llgbench.records import stats

    if rounds is not None:
        given.refuse("does not go with --rounds", "seconds")
    if grammar is None:
        given.refuse("goes with --grammar", "seconds")
    if rounds is not None and (case_names or maskbench or grammar):
        given.refuse("chooses cases and rounds, and both are given", "profile")
    if maskbench is not None and profile == "quick":
        given.refuse("quick does not go with --maskbench, whose rounds are its own", "profile")
    chosen = variants or DEFAULT_VARIANTS
    cases = _own_cases(maskbench, grammar, texts, special_tokens, text_format)
    if cases is not None and case_names:
        raise InputError("give --case or --maskbench or --grammar, not two of them")
    configurations = _configurations(
        tuple(cases) if cases is not None else case_names, vocabs, chosen, engine, profile
    )
    _validate_names(configurations, cases)
    asked = _rounds(rounds, profile, maskbench is not None)
    if grammar is not None and rounds is None:
        asked = replace(OWN, seconds=seconds)
    with output.steps(len(configurations), "replaying") as progress:

        def resumed(path: Path, already: int) -> None:
            output.say(f"continuing {path}: {already} are measured already")
            progress.done(already)

        def again(configuration: Configuration, why: str) -> None:
            output.say(f"measured again: {configuration} ({why})")

        recorded = recording.record(
            configurations,
            asked,
            cases=cases,
            results=results,
            limits=limits(supervisor.STEP_S, time_limit, memory_limit),
            retry=retry,
            command=shlex.join(["llgbench", *sys.argv[1:]]),
            resumed=resumed,
            again=again,
            doing=progress.doing,
            done=progress.done,
        )
    if recorded.nothing is not None:
        raise InputError(f"nothing could be measured: {recorded.nothing}")
    record, tally = recorded.record, recorded.tally
    order = {c: n for n, c in enumerate(configurations)}
    rows = [_row(e) for e in sorted(record.entries, key=lambda e: order[e.configuration])]
    if as_json:
        output.print_json(
            {
                "record": str(record.path),
                "provenance": record.provenance,
                "inside_llguidance_ns": tally.inside_ns,
                "setup_ns": tally.setup_ns,
                "wall_ns": tally.wall_ns,
                "configurations": rows,
            }
        )
        return
    output.print_table(rows, title="Times in µs, cold unless stated")
    if asked.seconds and any(row["mask p99"] is None and row["steps"] for row in rows):
        output.say(
            f"a p99 needs {stats.needed(99.0)} steps, and {seconds:g} s were too short: --seconds "
            "gives more time, or give a longer --text"
        )
    if tally.inside_ns:
        output.say(
            f"{tally.wall_ns / 1e9:.1f} s in all, {tally.wall_ns / tally.inside_ns:.2f} times the "
            f"{tally.inside_ns / 1e9:.1f} s inside llguidance; record: {record.path}"
        )


def _own_cases(
    maskbench: Path | None, grammar: Path | None, texts: Sequence[Path], special_tokens: bool,
    text_format: TextFormat | None,
) -> dict[str, Case] | None:  # fmt: skip
    from llgbench.inputs import case_file
    from llgbench.inputs.maskbench import load_maskbench

    if text_format is not None and maskbench is None:
        raise InputError("--text-format goes with --maskbench")
    if maskbench is not None and grammar is not None:
        raise InputError("give --maskbench or --grammar, not both")
    if maskbench is not None:
        return {c.name: c for c in load_maskbench(maskbench, text_format or "maskbench")}
    if grammar is not None:
        if not texts:
            raise InputError("--grammar needs at least one --text to replay")
        own = case_file.from_files(grammar, texts, special_tokens=special_tokens)
        return {own.name: own}
    if texts or special_tokens:
        raise InputError("--text and --special-tokens go with --grammar")
    return None


def _configurations(
    cases: tuple[str, ...], vocabs: tuple[str, ...], variants: tuple[str, ...], engine: str,
    profile: Profile | None,
) -> list[Configuration]:  # fmt: skip
    from llgbench.inputs import case_file, catalogue

    if not cases:
        listed = grid(
            profile or "quick", variants, tuple(case_file.names()), tuple(catalogue.vocabs())
        )
        if vocabs:
            listed = [c for c in listed if c.vocab in vocabs] or [
                Configuration(c.case, v, c.variant)
                for v in vocabs
                for c in listed
                if c.vocab == "llama-bpe"
            ]
        return [Configuration(c.case, c.vocab, c.variant, engine) for c in listed]
    return [
        Configuration(c, v, variant, engine)
        for v in vocabs or ("llama-bpe",)
        for c in cases
        for variant in variants
    ]


def _validate_names(configurations: Sequence[Configuration], cases: dict[str, Case] | None) -> None:
    """Refuse an unknown name before anything is measured."""
    from llgbench.engines import registry
    from llgbench.errors import UnavailableError, UnknownNameError
    from llgbench.inputs import case_file, catalogue, variant

    for name in dict.fromkeys(n for c in configurations for n in (c.case, c.vocab, c.engine)):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{name!r} is not UTF-8, and a record names its inputs; use a link of another name"
            ) from None
    for name in dict.fromkeys(c.variant for c in configurations):
        variant.get(name)
    for name in dict.fromkeys(c.case for c in configurations):
        if name not in (cases or {}):
            case_file.load(name)
    known = catalogue.vocabs()
    for name in dict.fromkeys(c.vocab for c in configurations):
        if name not in known and not catalogue.is_path(name):
            raise UnknownNameError("vocab", name, known)
    for name in dict.fromkeys(c.engine for c in configurations):
        if name != "default":
            try:
                registry.locate(name)
            except UnavailableError as error:
                raise InputError(str(error)) from None


def _rounds(rounds: int | None, profile: Profile | None, maskbench: bool) -> Rounds:
    from llgbench.measure.recording import FULL, QUICK
    from llgbench.measure.rounds import Rounds

    if rounds is not None:
        return Rounds(cold=rounds, warm=2 * rounds, cached=1, sibling=rounds)
    if profile == "full":
        return FULL
    # MaskBench's own harness replays each text once, on a copy of the file's one matcher: that is
    # the sibling. One warm round tells how much is set-up.
    return Rounds(cold=1, warm=1, cached=0, sibling=1) if maskbench else QUICK


def _row(entry: Entry) -> dict[str, Any]:
    from llgbench.records import times

    c = entry.configuration
    row: dict[str, Any] = {"case": c.case, "vocab": c.vocab, "variant": c.variant}
    if c.engine != "default":
        row["engine"] = c.engine
    shown: dict[str, float | None] = dict.fromkeys(_TIMES)
    verdict = f"not available: {entry.unavailable}"
    n_steps: int | None = None
    if entry.unavailable is None:
        n_steps = len(times.pooled(entry, "cold", "mask"))
        shown = {
            name: microseconds(_figure(times.pooled(entry, kind, measure), q))
            for name, (kind, measure, q) in _TIMES.items()
        }
        label, reason = entry.verdict["label"], entry.verdict["reason"]
        verdict = f"{label}: {reason}" if reason else label
    return {**row, "steps": n_steps, **shown, "verdict": verdict}


def _figure(samples: Times, q: float | None) -> float | None:
    from llgbench.records import stats

    return stats.mean(samples) if q is None else stats.percentile(samples, q)
