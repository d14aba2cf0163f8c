"""``llgbench sweep``: many schemas under several engines, for their verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from llgbench import output
from llgbench.commands import given
from llgbench.commands.options import limit_options, limits
from llgbench.output import json_option

if TYPE_CHECKING:
    from llgbench.peers.grammars import WhiteSpace


@click.command("sweep")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--engine", "engines", multiple=True, required=True, help="As of peers; repeat.")
@click.option("--vocab", default="llama-bpe", show_default=True, help="A vocab, or a GGUF file.")
@click.option(
    "--white-space",
    type=click.Choice(["flexible", "spaced", "compact"]),
    default="spaced",
    show_default=True,
    help="Between the tokens of JSON, for every engine alike.",
)
@click.option("--base", default="wheel", show_default=True, help="llguidance, to judge masks by.")
@click.option("--jobs", type=click.IntRange(1, 1024), default=1, show_default=True)
@click.option("--scheduler", help="Address of a Dask scheduler, whose workers do it instead.")
@click.option(
    "--output", "path", type=click.Path(path_type=Path), default=Path("sweep.jsonl"),
    show_default=True, help="File of the results; a sweep that was killed continues it.",
)  # fmt: skip
@limit_options("Most seconds of CPU time for one schema under one engine; default 60.")
@json_option
def sweep_command(
    folder: Path,
    engines: tuple[str, ...],
    vocab: str,
    white_space: WhiteSpace,
    base: str,
    jobs: int,
    scheduler: str | None,
    path: Path,
    time_limit: float | None,
    memory_limit: int | None,
    as_json: bool,
) -> None:
    """Judge engines on every MaskBench file in FOLDER: texts, masks, and what does not compile.

    Each schema has a process of its own under each engine, with a limit of time and of memory.
    Nothing is timed: verdicts run in parallel, and times would disturb each other.

    \b
    Examples:
      llgbench sweep maskbench/data --engine wheel --engine xgrammar:0.2.9 --jobs 4
      llgbench sweep maskbench/data --engine wheel --scheduler tcp://10.0.0.1:8786

    Exit status: 0 the sweep ran, whatever it found; 2 it could not.
    """
    if scheduler is not None:
        given.refuse("does not go with --scheduler, whose workers say how many at once", "jobs")
    from llgbench.inputs.maskbench import load_maskbench
    from llgbench.peers import sweep

    plan = sweep.Plan(
        engines=tuple(dict.fromkeys(engines)),
        cases=tuple(load_maskbench(folder)),
        vocab=vocab,
        white_space=white_space,
        base=base,
        limits=limits(sweep.SECONDS, time_limit, memory_limit),
        jobs=jobs,
        scheduler=scheduler,
    )
    results = sweep.run(plan, path, output.steps)
    rows, refusals = sweep.rows(results), sweep.refusals(results)
    if as_json:
        output.print_json({"engines": rows, "refusals": refusals, "file": str(path)})
        return
    output.print_table(rows, title=f"{len(plan.cases)} schemas of {folder}, {white_space}")
    if refusals:
        output.echo()
        output.print_table(refusals, title="Why schemas do not compile")
    output.say(f"every schema's result is in {path}")
