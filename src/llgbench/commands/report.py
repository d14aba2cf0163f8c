"""``llgbench report``: Markdown and pictures from records."""

from __future__ import annotations

from pathlib import Path

import click

from llgbench import output
from llgbench.errors import InputError
from llgbench.output import json_option


@click.command("report")
@click.argument("records_given", nargs=-1, type=click.Path(path_type=Path), metavar="[RECORD]...")
@click.option("--results", type=click.Path(path_type=Path), help="Default: results/.")
@click.option("--print", "show", is_flag=True, help="Print the headline tables as well.")
@json_option
def report_command(
    records_given: tuple[Path, ...], results: Path | None, show: bool, as_json: bool
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
        output.print_json(report.tables(read, report.read_asv(folder)))
        return
    if show:
        for record in read:
            for table in report.headline(record):
                rows = [dict(zip(table.headers, row, strict=True)) for row in table.rows]
                output.print_table(rows, title=table.title)
                click.echo()
        output.say("\n".join(report.RULES))
    click.echo(report.write(read, folder))
