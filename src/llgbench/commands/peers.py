"""``llgbench peers``: other engines beside llguidance, with a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from llgbench import output
from llgbench.commands.options import limit_options, limits
from llgbench.output import json_option

if TYPE_CHECKING:
    from llgbench.peers.grammars import WhiteSpace
    from llgbench.peers.results import Found


@click.command("peers")
@click.option(
    "--engine",
    "engines",
    multiple=True,
    help="xgrammar:VERSION[+lazy], gbnf, glrmask:VERSION, outlines:VERSION, or an engine of "
    "llguidance; repeat.  [default: wheel and all that are here]",
)
@click.option("--case", "cases", multiple=True, help="Default: the quick profile's; repeat.")
@click.option("--vocab", "vocabs", multiple=True, help="Default: llama-bpe; repeat.")
@click.option(
    "--white-space",
    "white_spaces",
    type=click.Choice(["flexible", "spaced", "compact"]),
    multiple=True,
    help="Between the tokens of JSON, for every engine alike; repeat.  [default: spaced]",
)
@click.option("--adapter", is_flag=True, help="Measure what a step costs without an engine, only.")
@click.option("--base", default="wheel", show_default=True, help="llguidance, to compare with.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=3, show_default=True)
@click.option(
    "--output", "folder", type=click.Path(path_type=Path),
    help="Folder for data, tables and a picture; results/peers is what llgbench report shows.",
)  # fmt: skip
@limit_options("Most seconds for one case under one engine; default 120.")
@json_option
def peers_command(
    engines: tuple[str, ...],
    cases: tuple[str, ...],
    vocabs: tuple[str, ...],
    white_spaces: tuple[WhiteSpace, ...],
    base: str,
    rounds: int,
    adapter: bool,
    folder: Path | None,
    time_limit: float | None,
    memory_limit: int | None,
    as_json: bool,
) -> None:
    """Compare other engines with llguidance: what is right of theirs, and what it costs.

    Every case runs in a process of its own, in which the engine and llguidance take turns. Where
    one crashes, hangs or needs too much memory, that is its result, and the others go on. Times
    are in µs unless the column says ms. "× llguidance" is formed over the steps whose masks are
    equal or differ by a named class, and where every text is as recorded.

    \b
    Examples:
      llgbench engine add xgrammar:0.2.9
      llgbench peers --engine xgrammar:0.2.9 --engine xgrammar:0.2.9+lazy --engine gbnf
      llgbench peers --case github-workflow --vocab qwen2 --white-space compact

    Exit status: 0 the comparison ran, whatever it found; 2 it could not.
    """
    from llgbench.engines import peers
    from llgbench.peers import run

    if not engines:
        engines = ("wheel", *(str(spec) for spec in peers.kept()))
    plan = run.Plan(
        engines=tuple(dict.fromkeys(engines)),
        cases=() if adapter else run.load_cases(cases, engines),
        vocabs=tuple(dict.fromkeys(vocabs)) or ("llama-bpe",),
        white_spaces=tuple(dict.fromkeys(white_spaces)) or ("spaced",),
        base=base,
        rounds=rounds,
        limits=limits(run.SECONDS, time_limit, memory_limit),
    )
    found = run.run(plan, output.steps)
    if folder is not None:
        _store(found, folder)
    if as_json:
        output.print_json(found.to_json())
    else:
        _print(found)


def _print(found: Found) -> None:
    from llgbench.report import peers as report

    if found.results:
        output.print_table(report.rows(found.results), title="By case")
        output.echo()
        output.print_table(report.summary(found.results), title="By engine, over its right cases")
        output.echo()
    output.print_table(report.adapters(found), title="The adapter by itself")
    for line in report.remarks(found.results):
        output.echo(line)


def _store(found: Found, folder: Path) -> None:
    from llgbench import files
    from llgbench.errors import RecordError
    from llgbench.report import peers as report

    with files.folder(folder, error=RecordError) as place:
        files.write(place / report.DATA, _json(found), error=RecordError)
        files.write(place / report.SECTION, report.write(found, place), error=RecordError)
    output.say(f"written to {folder}")


def _json(found: Found) -> bytes:
    import msgspec

    return msgspec.json.encode(found)
