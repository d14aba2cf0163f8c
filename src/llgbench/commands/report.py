"""``llgbench report``: Markdown and pictures from records."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from llgbench import output
from llgbench.commands import given
from llgbench.errors import InputError
from llgbench.output import json_option


@click.command("report")
@click.argument("records_given", nargs=-1, type=click.Path(path_type=Path), metavar="[RECORD]...")
@click.option("--results", type=click.Path(path_type=Path), help="Default: results/.")
@click.option("--pr", nargs=2, hidden=True)
@click.option("--print", "show", is_flag=True, help="Print the headline tables as well.")
@json_option
def report_command(
    records_given: tuple[Path, ...],
    results: Path | None,
    pr: tuple[str, str] | None,
    show: bool,
    as_json: bool,
) -> None:
    """Write report.md and its pictures from records (the newest one by default) and ASV results.

    \b
    Examples:
      llgbench report
      llgbench report results/records/20261130T010020-15b1dde8a0ce08ba.jsonl
    """
    if pr is not None:
        raise InputError(f"report --pr is a command of its own: llgbench pr {shlex.join(pr)}")
    if as_json:
        given.refuse("does not go with --json", "show")
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
