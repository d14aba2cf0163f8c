"""``llgbench report``: Markdown and pictures from records."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from llgbench import output
from llgbench.commands import given
from llgbench.commands.options import FiniteFloat
from llgbench.errors import InputError
from llgbench.output import json_option

if TYPE_CHECKING:
    from llgbench.compare.comparison import Plan

# A week; what is meant to run longer is a mistake.
MAX_BUDGET_S = 604_800


@click.command("report")
@click.argument("records_given", nargs=-1, type=click.Path(path_type=Path), metavar="[RECORD]...")
@click.option("--results", type=click.Path(path_type=Path), help="Default: results/.")
@click.option("--pr", nargs=2, metavar="BASE HEAD", help="Write a pull-request section instead.")
@click.option("--case", "cases", multiple=True, help="With --pr: as in llgbench compare.")
@click.option("--vocab", "vocabs", multiple=True, help="With --pr: as in llgbench compare.")
@click.option(
    "--budget", type=FiniteFloat(5, MAX_BUDGET_S), default=300.0, help="With --pr: seconds."
)
@click.option("--variant", default="greedy_tokenize", help="With --pr: the bridge of both.")
@click.option("--threshold", type=FiniteFloat(0, 1), help="With --pr: least change of interest.")
@click.option("--where-equal", is_flag=True, help="With --pr: the cases whose masks agree.")
@click.option("--count", is_flag=True, help="With --pr: let instructions decide.")
@click.option(
    "--output", "folder", type=click.Path(path_type=Path), help="With --pr: where the files go."
)
@click.option("--print", "show", is_flag=True, help="Print the headline tables as well.")
@json_option
def report_command(
    records_given: tuple[Path, ...],
    results: Path | None,
    pr: tuple[str, str] | None,
    cases: tuple[str, ...],
    vocabs: tuple[str, ...],
    budget: float,
    variant: str,
    threshold: float | None,
    where_equal: bool,
    count: bool,
    folder: Path | None,
    show: bool,
    as_json: bool,
) -> None:
    """Write report.md and its pictures from records (the newest one by default) and ASV results.

    \b
    Examples:
      llgbench report
      llgbench report results/records/20261130T010020-15b1dde8a0ce08ba.jsonl
      llgbench report --pr pypi:1.9.0 pypi:1.9.1
    """
    if pr is not None:
        given.refuse("does not go with --pr", "results", "show")
        if records_given:
            raise InputError("records do not go with --pr")
        from llgbench.compare import run as compare

        plan = compare.plan_of(
            cases, vocabs, variant, threshold, budget, unequal=where_equal, count=count
        )
        _pull_request(pr, plan, count, folder, as_json)
    given.refuse(
        "goes with --pr", "cases", "vocabs", "budget", "variant", "threshold", "where_equal",
        "count", "folder",
    )  # fmt: skip
    from llgbench import paths
    from llgbench.fallback import summary
    from llgbench.records import record as records
    from llgbench.report import document

    place = results or paths.root() / "results"
    chosen = list(records_given)
    if not chosen:
        newest = records.latest(place / "records")
        if newest is None:
            raise InputError(f"no records in {place / 'records'}; run: llgbench run")
        chosen = [newest]
    read = [records.read(path) for path in chosen]
    if as_json:
        overhead = summary.load(place)
        output.print_json(document.tables(read, document.read_asv(place), overhead))
        return
    if show:
        for record in read:
            for table in document.headline(record):
                rows = [dict(zip(table.headers, row, strict=True)) for row in table.rows]
                output.print_table(rows, title=table.title)
                output.echo()
        output.say("\n".join(document.RULES))
    output.echo(str(document.write(read, place)))


def _pull_request(
    pr: tuple[str, str], plan: Plan, count: bool, folder: Path | None, as_json: bool
) -> NoReturn:
    """Compare, write the section and its picture, and exit as ``llgbench compare`` does."""
    from llgbench import files
    from llgbench.compare import run as compare
    from llgbench.errors import RecordError
    from llgbench.report import pull_request

    found, where = compare.run(
        *pr, plan, folder, count=count, say=output.quiet_say, announce=output.say
    )
    picture = None
    if found.rows:
        picture = "comparison.png"
        pull_request.picture(found, where / picture)
    text = pull_request.section(found, shlex.join(["llgbench", *sys.argv[1:]]), picture)
    path = where / "section.md"
    files.write(path, text.encode(errors="backslashreplace"), error=RecordError)
    if as_json:
        output.print_json({**found.to_json(), "section": str(path)})
    else:
        output.echo(text)
    output.say(f"section and picture: {where}")
    sys.exit(output.EXIT_DIFFERENCE if found.failed else 0)
