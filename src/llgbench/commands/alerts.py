"""``llgbench alerts`` and ``llgbench asv``: regressions over commits."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from llgbench import output
from llgbench.errors import InputError
from llgbench.output import json_option


@click.command("alerts")
@click.option("--results", type=click.Path(path_type=Path), help="ASV results.  [default: results]")
@click.option("--decisions", type=click.Path(path_type=Path), help="Default: alerts.json there.")
@click.option(
    "--threshold", type=click.FloatRange(0), default=0.05, show_default=True, help="Least step."
)
@click.option("--match", default="", help="Only alerts whose line has this text.")
@click.option("--accept", "reason", metavar="REASON", help="Accept what is listed, and why.")
@json_option
def alerts_command(
    results: Path | None,
    decisions: Path | None,
    threshold: float,
    match: str,
    reason: str | None,
    as_json: bool,
) -> None:
    """List what has become slower over commits; exit 1 if any is new.

    Steps are found in ASV's results, and between the two newest records of a machine. A decision
    is kept with its reason in a file to commit.

    \b
    Examples:
      llgbench alerts
      llgbench alerts --match compile --accept "compiles twice, masks are 3x faster: #123"
      llgbench alerts --results ../llguidance-asv/results
    """
    from llgbench import alerts, paths

    folder = results or paths.root() / "results"
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of results; run: asv run")
    file = decisions or folder / alerts.ACCEPTED
    found = alerts.from_asv(folder, threshold) + alerts.from_records(folder / "records", threshold)
    found = [alert for alert in found if match in str(alert)]
    if reason is not None:
        n = alerts.accept(file, found, reason)
        output.say(f"accepted {n} alerts in {file}; commit it")
    new, known = alerts.split(found, alerts.accepted(file))
    if as_json:
        output.print_json(
            {"new": [a.to_json() for a in new], "accepted": [a.to_json() for a in known]}
        )
    else:
        for alert in new:
            click.echo(f"NEW {alert}")
        why = alerts.accepted(file)
        for alert in known:
            click.echo(f"accepted {alert}: {why[alert.key]['reason']}")
        click.echo(f"{len(new)} new alerts, {len(known)} accepted")
    sys.exit(output.EXIT_DIFFERENCE if new else 0)


@click.command("asv")
@click.option(
    "--repo", required=True, type=click.Path(path_type=Path), help="A llguidance checkout."
)
@click.option("--output", "folder", type=click.Path(path_type=Path), help="Default: REPO-asv.")
@click.option("--branch", default="main", show_default=True, help="Whose commits are measured.")
@click.option("--case", "cases", multiple=True, help="Default: the quick JSON cases; repeat.")
@click.option("--vocab", "vocabs", multiple=True, help="Default: llama-bpe; repeat.")
def asv_command(
    repo: Path,
    folder: Path | None,
    branch: str,
    cases: tuple[str, ...],
    vocabs: tuple[str, ...],
) -> None:
    """Write an ASV configuration that measures the commits of a llguidance checkout.

    \b
    Examples:
      llgbench asv --repo ../llguidance
      cd ../llguidance-asv && asv machine --yes && asv run v1.9.0..main && asv publish
      llgbench alerts --results ../llguidance-asv/results
    """
    from llgbench import asv_config

    written = asv_config.write(repo, folder, branch, cases, vocabs)
    click.echo(written)
