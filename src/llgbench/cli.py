"""The command line. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import llgbench
from llgbench import output
from llgbench.configuration import Configuration, Profile, grid
from llgbench.errors import InputError, LlgbenchError

if TYPE_CHECKING:
    from llgbench.case import Case
    from llgbench.records import Entry
    from llgbench.replay import Rounds

EXIT_DIFFERENCE = 1
EXIT_BAD_INPUT = 2

_json = click.option("--json", "as_json", is_flag=True, help="Write the table as JSON.")
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_CONTEXT)
@click.version_option(llgbench.__version__, prog_name="llgbench")
def cli() -> None:
    """Measure what constrained decoding costs, with a verdict beside every time.

    \b
    Examples:
      llgbench doctor                      what is here, what will be skipped
      llgbench check                       are the masks right?
      llgbench run --case json-tool-call   time one case under the four variants
      llgbench report                      tables and pictures of the newest record

    Exit status: 0 all well, 1 something is not as recorded, 2 the input cannot be used.
    """


# ---- vocab -------------------------------------------------------------------------------------


@cli.group("vocab")
def vocab_group() -> None:
    """Fetch vocabularies and compare their token tables."""


@vocab_group.command("fetch")
def vocab_fetch() -> None:
    """Bring the vocabularies of vocabs/vocabs.toml, verify them, reuse what is there."""
    from llgbench import vocab

    vocab.fetch(output.say)


@vocab_group.command("list")
@_json
def vocab_list(as_json: bool) -> None:
    """List the catalogue: name, kind, tokens, whether fetched."""
    from llgbench import vocab

    rows = [
        {"vocab": e.name, "kind": e.kind, "tokens": e.tokens, "fetched": e.here, "sha256": e.sha256}
        for e in vocab.catalogue().values()
    ]
    if not as_json:
        for row in rows:
            row["sha256"] = str(row["sha256"])[:12]
    output.print_table(rows, as_json=as_json)


@vocab_group.command("table")
@click.argument("names", nargs=-1, metavar="[VOCAB]...")
@_json
def vocab_table(names: tuple[str, ...], as_json: bool) -> None:
    """Count the tokens whose bytes llama_detokenize gets wrong (all vocabs by default).

    A token "lost a space" where its piece begins with one and its detokenized bytes do not; a run
    of spaces that only got shorter differs without losing.

    \b
    Examples:
      llgbench vocab table llama-spm llama-bpe
      llgbench vocab table --json
    """
    from llgbench import checks, vocab

    rows = []
    for name in names or tuple(vocab.catalogue()):
        with vocab.open_vocab(name) as opened:
            rows.append(asdict(checks.token_bytes(opened)))
    output.print_table(rows, as_json=as_json)


# ---- engine ------------------------------------------------------------------------------------


@cli.group("engine")
def engine_group() -> None:
    """Name, add and build engines: shared libraries with llguidance's C API."""


@engine_group.command("list")
@_json
def engine_list(as_json: bool) -> None:
    """List the engines, what release each is, and whether it has the fallback (by behaviour)."""
    from llgbench import registry

    rows = []
    for entry in registry.entries().values():
        row: dict[str, Any] = {
            "engine": entry.name, "spec": entry.spec, "release": None, "fallback": None,
            "sha256": None, "state": "here",
        }  # fmt: skip
        if entry.path is None:
            row["state"] = f"not here; run: {entry.remedy}"
        else:
            try:
                engine = registry.get(entry.name)
                row["release"], row["sha256"] = engine.release, engine.sha256[:12]
                row["fallback"] = engine.fallback_option or "no"
            except LlgbenchError as error:
                row["state"] = str(error)
        rows.append(row)
    output.print_table(rows, as_json=as_json)


@engine_group.command("path")
@click.argument("name")
def engine_path(name: str) -> None:
    """Print the library of an engine (a name, pypi:VERSION, or a path)."""
    from llgbench import registry

    click.echo(registry.get(name).path)


@engine_group.command("add")
@click.argument("name")
@click.argument("spec")
def engine_add(name: str, spec: str) -> None:
    """Register SPEC under NAME: pypi:VERSION, or the path of a library.

    \b
    Examples:
      llgbench engine add old pypi:1.7.6
      llgbench engine add mine ../llguidance/target/release/libllguidance.so
    """
    from llgbench import registry

    entry = registry.add(name, spec, output.say)
    click.echo(entry.path)


@engine_group.command("build")
@click.argument("flavour", type=click.Choice(["stock", "fallback"]))
def engine_build_command(flavour: str) -> None:
    """Build llguidance from its published crate by cargo: as it is, or with the fallback.

    The library is cached under a key of all its inputs; a second call only prints its path.
    """
    from llgbench import engine_build

    click.echo(engine_build.build(flavour, report=output.say))


# ---- check -------------------------------------------------------------------------------------


@cli.command("check")
@click.option("--vocab", "vocabs", multiple=True, help="Only these (default: all of the catalogue).")
@click.option("--variant", "variants", multiple=True, help="Only these (default: all five).")
@click.option("--case", "cases", multiple=True, help="Only these (default: all).")
@click.option("--masks", is_flag=True, help="Also judge every mask of the cases on these vocabs.")
@_json
def check(
    vocabs: tuple[str, ...], variants: tuple[str, ...], cases: tuple[str, ...], masks: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Check masks and acceptance: the probes on every vocab and variant, and every case's texts.

    "spaced" counts tokens that /[.a-z]{2,6}/ "!" allows first though their real bytes hold a
    space; "forced" are the tokens that "hello world" allows first, right where each is a prefix.
    Exit status 1 where a case's text is not accepted or rejected as its case.toml says, or a
    variant with exact bytes allows what it must not.

    \b
    Examples:
      llgbench check --vocab llama-spm
      llgbench check --json > check.json
    """
    from llgbench import correctness

    found = correctness.check(vocabs, variants, cases, masks=masks, show=output.steps)
    if as_json:
        output.print_json(found.to_json())
    else:
        output.print_table(found.probe_rows(), title="Probes, by vocab and variant")
        click.echo()
        output.print_table(found.text_rows(), title="Texts, by case")
        if masks:
            click.echo()
            output.print_table(found.mask_rows(), title="Masks, by case, vocab and variant")
    for line in found.unexpected:
        output.say(f"not as recorded: {line}")
    if found.unexpected:
        raise SystemExit(EXIT_DIFFERENCE)


# ---- run ---------------------------------------------------------------------------------------


@cli.command("run")
@click.option("--vocab", "vocabs", multiple=True, help="A vocab by name, or a GGUF file; repeat.")
@click.option("--case", "case_names", multiple=True, help="A case by name, or its folder; repeat.")
@click.option("--variant", "variants", multiple=True, help="Default: the four variants.")
@click.option("--engine", default="default", help="An engine's name, pypi:VERSION, or a library.")
@click.option("--rounds", type=click.IntRange(1, 10_000), help="Cold replays; twice as many warm.")
@click.option("--profile", type=click.Choice(["quick", "full"]), help="The suite's own grid.")
@click.option("--maskbench", type=click.Path(path_type=Path), help="A folder of MaskBench files.")
@click.option("--grammar", type=click.Path(path_type=Path), help="Your grammar: .lark, or a schema.")
@click.option("--text", "texts", multiple=True, type=click.Path(path_type=Path), help="Its texts.")
@click.option("--results", type=click.Path(path_type=Path), help="Default: results/.")
@_json
def run(
    vocabs: tuple[str, ...],
    case_names: tuple[str, ...],
    variants: tuple[str, ...],
    engine: str,
    rounds: int | None,
    profile: Profile | None,
    maskbench: Path | None,
    grammar: Path | None,
    texts: tuple[Path, ...],
    results: Path | None,
    as_json: bool,
) -> None:
    """Replay cases under variants; print the times with their verdicts, store the raw samples.

    Without --case, --maskbench or --grammar the profile's grid runs (quick by default). A run
    that was killed goes on where it stopped when it is started again unchanged.

    \b
    Examples:
      llgbench run --profile quick
      llgbench run --case github-workflow --vocab llama-bpe --variant greedy_tokenize
      llgbench run --grammar my.lark --text ok.txt --vocab ./my-model.gguf
      llgbench run --maskbench maskbench/data --vocab llama-bpe --variant token_to_piece
    """
    from llgbench import paths, provenance, records, runner
    from llgbench.variant import DEFAULT_VARIANTS

    chosen = variants or DEFAULT_VARIANTS
    cases = _own_cases(maskbench, grammar, texts)
    if cases is not None and case_names:
        raise InputError("give --case or --maskbench or --grammar, not two of them")
    configurations = _configurations(
        tuple(cases) if cases is not None else case_names, vocabs, chosen, engine, profile
    )
    _validate_names(configurations, cases)
    plan = _rounds(rounds, profile, maskbench is not None)

    root = paths.root()
    where = (results or root / "results") / "records"
    where_from = provenance.collect(root)
    digests = sorted(c.digest for c in (cases or {}).values())
    mark = records.fingerprint(
        provenance.identity(where_from), [str(c) for c in configurations], asdict(plan), digests
    )
    tally = runner.Tally()
    entries: list[Entry] = []
    with records.Writer(where, mark, {**where_from, "rounds": asdict(plan)}) as writer:
        todo = [c for c in configurations if c not in writer.done]
        if writer.done:
            output.say(f"going on with {writer.path}: {len(writer.done)} are measured already")
        try:
            with output.steps(len(todo), "replaying") as progress:
                running = runner.run(
                    todo, plan, tally, cases, progress.doing, strict=maskbench is None
                )
                for entry in running:
                    writer.add(entry)
                    entries.append(entry)
                    progress.done()
        except KeyboardInterrupt:
            raise InputError(
                f"interrupted; what was measured is kept in {writer.path}, "
                "and the same command goes on from there"
            ) from None
        writer.end()
    entries = list(records.read(writer.path).entries)
    if as_json:
        output.print_json(
            {
                "record": str(writer.path),
                "provenance": where_from,
                "inside_llguidance_ns": tally.inside_ns,
                "setup_ns": tally.setup_ns,
                "wall_ns": tally.wall_ns,
                "configurations": [_row(entry) for entry in entries],
            }
        )
        return
    output.print_table([_row(entry) for entry in entries], title="Times in µs, cold unless said")
    if tally.inside_ns:
        output.say(
            f"{tally.wall_ns / 1e9:.1f} s in all, {tally.wall_ns / tally.inside_ns:.2f} times the "
            f"{tally.inside_ns / 1e9:.1f} s inside llguidance; record: {writer.path}"
        )


def _own_cases(
    maskbench: Path | None, grammar: Path | None, texts: Sequence[Path]
) -> dict[str, Case] | None:
    from llgbench import case

    if maskbench is not None and grammar is not None:
        raise InputError("give --maskbench or --grammar, not both")
    if maskbench is not None:
        return {c.name: c for c in case.load_maskbench(maskbench)}
    if grammar is not None:
        if not texts:
            raise InputError("--grammar needs at least one --text to replay")
        own = case.from_files(grammar, texts)
        return {own.name: own}
    if texts:
        raise InputError("--text goes with --grammar")
    return None


def _configurations(
    cases: tuple[str, ...], vocabs: tuple[str, ...], variants: tuple[str, ...], engine: str,
    profile: Profile | None,
) -> list[Configuration]:  # fmt: skip
    from llgbench import case, vocab

    if not cases:
        listed = grid(
            profile or "quick", variants, tuple(case.names()), tuple(vocab.catalogue())
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


def _validate_names(
    configurations: Sequence[Configuration], cases: dict[str, Case] | None
) -> None:
    """Refuse an unknown name before anything is measured."""
    from llgbench import case, registry, variant, vocab
    from llgbench.errors import UnavailableError, UnknownNameError

    for name in dict.fromkeys(c.variant for c in configurations):
        variant.get(name)
    for name in dict.fromkeys(c.case for c in configurations):
        if name not in (cases or {}):
            case.load(name)
    known = vocab.catalogue()
    for name in dict.fromkeys(c.vocab for c in configurations):
        if name not in known and not (name.endswith(".gguf") or os.sep in name):
            raise UnknownNameError("vocab", name, known)
    for name in dict.fromkeys(c.engine for c in configurations):
        if name != "default":
            try:
                registry.get(name)
            except UnavailableError as error:
                raise InputError(str(error)) from None


def _rounds(rounds: int | None, profile: Profile | None, maskbench: bool) -> Rounds:
    from llgbench.replay import Rounds

    if rounds is not None:
        return Rounds(cold=rounds, warm=2 * rounds, cached=1)
    if profile == "full":
        return Rounds(cold=5, warm=20, cached=2)
    # MaskBench's own harness replays each text once; one warm round tells how much is set-up.
    return Rounds(cold=1, warm=1, cached=0) if maskbench else Rounds(cold=2, warm=4, cached=1)


def _row(entry: Entry) -> dict[str, Any]:
    from llgbench import stats

    c = entry.configuration
    row: dict[str, Any] = {"case": c.case, "vocab": c.vocab, "variant": c.variant}
    if c.engine != "default":
        row["engine"] = c.engine
    times: dict[str, float | None] = dict.fromkeys(
        ("mask p50", "mask p99", "mask max", "warm p50", "cached p50", "consume p50", "TTFM p50")
    )
    verdict = f"not available: {entry.unavailable}"
    n_steps: int | None = None
    if entry.unavailable is None:
        s = entry.samples
        pooled = {name: stats.pool(arrays) for name, arrays in s.items()}
        first = min(len(pooled["compile"]), len(pooled["first_mask"]))
        ttfm = pooled["compile"][:first] + pooled["first_mask"][:first]
        n_steps = len(pooled["cold_mask"])
        values = {
            "mask p50": stats.percentile(pooled["cold_mask"], 50),
            "mask p99": stats.percentile(pooled["cold_mask"], 99),
            "mask max": stats.percentile(pooled["cold_mask"], 100),
            "warm p50": stats.percentile(pooled["warm_mask"], 50),
            "cached p50": stats.percentile(pooled["cached_mask"], 50),
            "consume p50": stats.percentile(pooled["cold_consume"], 50),
            "TTFM p50": stats.percentile(ttfm, 50),
        }
        times = {name: output.microseconds(value) for name, value in values.items()}
        label, reason = entry.verdict["label"], entry.verdict["reason"]
        verdict = f"{label}: {reason}" if reason else label
    return {**row, "steps": n_steps, **times, "verdict": verdict}


# ---- report, doctor ----------------------------------------------------------------------------


@cli.command("report")
@click.argument("records_given", nargs=-1, type=click.Path(path_type=Path), metavar="[RECORD]...")
@click.option("--results", type=click.Path(path_type=Path), help="Default: results/.")
@_json
def report_command(
    records_given: tuple[Path, ...], results: Path | None, as_json: bool
) -> None:
    """Write report.md and its pictures from records (the newest one by default) and ASV results.

    \b
    Examples:
      llgbench report
      llgbench report results/records/20261130T010020-15b1dde8a0ce08ba.jsonl
    """
    from llgbench import paths, records, report

    folder = results or paths.root() / "results"
    chosen = list(records_given)
    if not chosen:
        newest = records.latest(folder / "records")
        if newest is None:
            raise InputError(f"no records in {folder / 'records'}; run: llgbench run")
        chosen = [newest]
    read = [records.read(path) for path in chosen]
    if as_json:
        output.print_json(report.tables(read))
        return
    click.echo(report.write(read, folder))


@cli.command("doctor")
@_json
def doctor_command(as_json: bool) -> None:
    """Say what is here, and what will be skipped and why."""
    from llgbench import doctor

    output.print_table([asdict(f) for f in doctor.examine()], as_json=as_json)


def main() -> None:
    """Run the command line; the user's mistakes end in one line and exit status 2."""
    try:
        status = cli.main(standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except LlgbenchError as error:
        _fail(str(error))
    except click.ClickException as error:
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f" (see {error.ctx.command_path} --help)"
        _fail(f"{error.format_message()}{hint}")
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted; nothing half-written is left behind")
    except BrokenPipeError:
        # The reader of our output has gone; what is left to say is for nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_BAD_INPUT)


def _fail(message: str) -> None:
    output.say(f"llgbench: {' '.join(message.split())}")
    sys.exit(EXIT_BAD_INPUT)


if __name__ == "__main__":
    main()
