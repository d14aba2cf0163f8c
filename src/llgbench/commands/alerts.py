"""``llgbench alerts`` and ``llgbench asv``: regressions over commits."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llgbench import output
from llgbench.commands.options import FiniteFloat, since_tag_option
from llgbench.errors import InputError
from llgbench.output import json_option

if TYPE_CHECKING:
    from llgbench.asv.alert import Alert


@click.command("alerts")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    help="Folder of ASV results and records.  [default: results]",
)
@click.option(
    "--repo",
    type=click.Path(path_type=Path),
    help="Repository whose history orders the commits.  [default: that of asv.conf.json]",
)
@click.option("--branch", "branches", multiple=True, help="Branch to follow there; repeat.")
@click.option(
    "--decisions",
    type=click.Path(path_type=Path),
    help="File of accepted alerts.  [default: alerts.json in the folder of results]",
)
@click.option(
    "--threshold",
    type=FiniteFloat(min=0),
    default=0.05,
    show_default=True,
    help="Least relative change of a time or a ratio.",
)
@since_tag_option
@click.option("--match", default="", help="Only alerts whose line contains this text.")
@click.option("--accept", "reason", metavar="REASON", help="Accept the new alerts, and say why.")
@json_option
def alerts_command(
    results: Path | None,
    repo: Path | None,
    branches: tuple[str, ...],
    decisions: Path | None,
    threshold: float,
    since_tag: str | None,
    match: str,
    reason: str | None,
    as_json: bool,
) -> None:
    """List what has become worse over commits; exit 1 if anything new is.

    Every series of ASV's results is compared with its own best earlier level, or with the commit of
    a release (--since-tag), and the newest record of a machine with the one before it. A decision
    is kept with its reason in a file to commit.

    \b
    Examples:
      llgbench alerts
      llgbench alerts --match compile --accept "compiles twice, masks are 3x faster: #123"
      llgbench alerts --results ../llguidance-asv/results --since-tag
      llgbench alerts --results results/reference
    """  # fmt: skip
    from llgbench import paths
    from llgbench.asv import alerts, history
    from llgbench.asv import decisions as kept

    folder = results or paths.root() / "results"
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of results; run: asv run")
    if branches and repo is None:
        raise InputError("--branch needs --repo, the repository that has the branch")
    repository = None if repo is None else history.named(repo, branches)
    file = decisions or folder / alerts.ACCEPTED

    def find() -> alerts.Found:
        found = alerts.find(
            folder, threshold, decided=kept.read(file), repository=repository, since_tag=since_tag
        )
        return replace(found, alerts=tuple(a for a in found.alerts if match in str(a)))

    found = find()
    if reason is not None:
        n = kept.accept(file, found.alerts, reason)
        output.say(f"accepted {n} alerts in {file}; commit it" if n else "no new alert to accept")
        found = find()
    new, accepted = found.in_state("new"), found.in_state("accepted")
    closed, better = found.in_state("closed"), found.in_state("better")
    if as_json:
        output.print_json(
            {
                "new": [alert.to_json() for alert in new],
                "accepted": [alert.to_json() for alert in accepted],
                "closed": [alert.to_json() for alert in closed],
                "better": [alert.to_json() for alert in better],
                "notes": found.notes,
            }
        )
    else:
        listed = [*new, *accepted, *closed, *better]
        if listed:
            output.print_table([_row(alert) for alert in listed])
        for note in found.notes:
            output.say(f"note: {note}")
        counted = f"{len(new)} new alert{'' if len(new) == 1 else 's'}, {len(accepted)} accepted"
        click.echo(f"{counted}, {len(closed)} closed, {len(better)} facts better")
    sys.exit(output.EXIT_DIFFERENCE if new else 0)


def _row(alert: Alert) -> dict[str, str]:
    return {
        "state": "NEW" if alert.state == "new" else alert.state,
        "series": alert.name,
        "on": alert.place,
        "change": alert.change,
        "commits": alert.commit_range,
        "standing": alert.standing,
    }


@click.command("asv")
@click.option(
    "--repo", required=True, type=click.Path(path_type=Path), help="A llguidance checkout."
)
@click.option("--output", "folder", type=click.Path(path_type=Path), help="Default: REPO-asv.")
@click.option("--branch", default="main", show_default=True, help="Whose commits are measured.")
@click.option("--case", "cases", multiple=True, help="Default: the quick JSON cases; repeat.")
@click.option("--vocab", "vocabs", multiple=True, help="Default: llama-bpe; repeat.")
@click.option(
    "--chain",
    metavar="ENGINE",
    help="The reference engine so far, to keep what was measured beside it; measures for minutes.",
)
def asv_command(
    repo: Path,
    folder: Path | None,
    branch: str,
    cases: tuple[str, ...],
    vocabs: tuple[str, ...],
    chain: str | None,
) -> None:
    """Write an ASV configuration that measures the commits of a llguidance checkout.

    \b
    Examples:
      llgbench asv --repo ../llguidance
      cd ../llguidance-asv && asv machine --yes && asv run v1.9.0..main && asv publish
      llgbench alerts --results ../llguidance-asv/results

    Another wheel of llguidance is another reference engine; with the one before it the history goes
    on:

    \b
      llgbench asv --repo ../llguidance --chain pypi:1.9.0
    """
    from llgbench.asv import config, references
    from llgbench.compare import sides
    from llgbench.engines import registry

    old = None if chain is None else sides.resolve(chain, output.say)
    written = config.write(repo, folder, branch, cases, vocabs)
    if old is not None:
        new = sides.resolve(registry.WHEEL, output.say)
        suite = config.chosen(cases, vocabs)
        with output.moving(f"measuring {old} beside {new}"):
            link = references.measure(old, new, *suite)
        references.add(written.parent / config.RESULTS / references.FILE, link)
        for line in references.lines(link):
            output.say(line)
    click.echo(written)
