"""``llgbench site``: pages of ASV's results that need no network."""

from __future__ import annotations

from pathlib import Path

import click

from llgbench import output
from llgbench.commands.options import since_tag_option


@click.command("site")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    help="Folder of ASV results.  [default: results]",
)
@click.option(
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the pages.  [default: html in the folder of results]",
)
@click.option(
    "--repo",
    type=click.Path(path_type=Path),
    help="Repository whose history orders the commits.  [default: that of asv.conf.json]",
)
@click.option(
    "--commit-url",
    metavar="URL",
    help="Address of a commit without its hash.  [default: that of the repository's origin]",
)
@since_tag_option
def site_command(
    results: Path | None,
    folder: Path | None,
    repo: Path | None,
    commit_url: str | None,
    since_tag: str | None,
) -> None:
    """Write pages of every benchmark over commits, with its alerts and links to the commits.

    They are plain HTML: open index.html in a browser, with or without a network.

    \b
    Examples:
      llgbench site
      llgbench site --results results/reference --output /tmp/reference
      llgbench site --results ../llguidance-asv/results
    """  # fmt: skip
    from llgbench import paths
    from llgbench.asv import history
    from llgbench.errors import InputError
    from llgbench.report import site

    place = results or paths.root() / "results"
    if not place.is_dir():
        raise InputError(f"{place}: no such folder of results; run: asv run")
    repository = None if repo is None else history.named(repo)
    index = site.write(
        place,
        folder or place / "html",
        repository=repository,
        commit_url=commit_url,
        since_tag=since_tag,
    )
    output.echo(str(index))
