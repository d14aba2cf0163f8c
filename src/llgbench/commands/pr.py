"""``llgbench pr``: the performance section of a pull request."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llgbench import output
from llgbench.commands import given
from llgbench.commands.comparing import Wanted, comparison_options
from llgbench.errors import InputError
from llgbench.output import json_option

if TYPE_CHECKING:
    from llgbench.compare.comparison import Comparison

SECTION, PICTURE = "section.md", "comparison.png"


@click.command("pr")
@click.argument("base", required=False)
@click.argument("head", required=False)
@comparison_options
@click.option(
    "--from",
    "stored",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Render a stored comparison.json; nothing is measured.",
)
@click.option(
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the files.  [default: comparisons/TIME; --from: none is written]",
)
@json_option
def pr_command(
    base: str | None,
    head: str | None,
    stored: Path | None,
    folder: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the section of a pull request: compare BASE and HEAD as ``llgbench compare`` does.

    The section is printed and kept as section.md, with comparison.png to attach. With --from it is
    rendered again from what an earlier comparison stored, on any machine; --threshold then judges
    its ratios anew, and --variant and --where-equal must be those it was measured with.

    \b
    Examples:
      llgbench pr pypi:1.9.0 pypi:1.9.1
      llgbench pr git:../llguidance@main git:../llguidance@HEAD --count --output section
      llgbench pr --from section/comparison.json --threshold 0.05

    Exit status: 0 nothing is slower, 1 something is (or masks differ), 2 could not compare.
    """
    wanted = Wanted(**options)
    where: Path | None
    if stored is not None:
        if base is not None:
            raise InputError("give BASE and HEAD, or --from FILE")
        given.refuse("does not go with --from", "cases", "vocabs", "budget", "count")
        found, where = _stored(stored, wanted), folder
    else:
        if base is None or head is None:
            raise InputError("give BASE and HEAD, or --from FILE")
        found, where = wanted.run(base, head, folder)
    _write(found, where, as_json)
    sys.exit(output.EXIT_DIFFERENCE if found.failed else 0)


def _stored(path: Path, wanted: Wanted) -> Comparison:
    """Read a comparison, and judge it by the threshold that is wanted."""
    from llgbench.compare import comparison, table

    found = comparison.read(path)
    if given.was("variant") and wanted.variant != found.plan.variant:
        raise InputError(
            f"--variant: {path} was measured with {found.plan.variant}; compare again for another"
        )
    if wanted.where_equal and not found.plan.unequal:
        raise InputError(
            f"--where-equal: {path} was measured without it; compare again for the cases whose "
            "masks agree"
        )
    if wanted.threshold is None:
        return found
    return table.judged_again(found, wanted.threshold)


def _write(found: Comparison, where: Path | None, as_json: bool) -> None:
    """Print the section; write it and its picture where a folder is given."""
    from llgbench import files
    from llgbench.errors import RecordError
    from llgbench.report import pull_request

    drawn = PICTURE if where is not None and found.rows else None
    text = pull_request.section(found, drawn)
    data = found.to_json()
    if where is not None:
        path = where / SECTION
        files.write(path, text.encode(errors="backslashreplace"), error=RecordError)
        data["section"] = str(path)
    if where is not None and drawn is not None:
        from llgbench.report import ratio_plot

        ratio_plot.draw(found, where / drawn)
        data["picture"] = str(where / drawn)
    if as_json:
        output.print_json(data)
    else:
        output.echo(text)
    if where is not None:
        attach = f"; picture to attach: {where / drawn}" if drawn is not None else ""
        output.say(f"section: {where / SECTION}{attach}")
