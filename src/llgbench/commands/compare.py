"""``llgbench compare``: is HEAD slower than BASE?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llgbench import output
from llgbench.commands.comparing import Wanted, comparison_options
from llgbench.errors import InputError
from llgbench.output import json_option
from llgbench.shown import microseconds

if TYPE_CHECKING:
    from llgbench.compare.comparison import Comparison, Row


@click.command("compare")
@click.argument("base")
@click.argument("head", required=False)
@comparison_options
@click.option("--self", "against_itself", is_flag=True, help="A/A: the noise floor of BASE.")
@click.option(
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the files.  [default: comparisons/TIME]",
)
@json_option
def compare_command(
    base: str,
    head: str | None,
    against_itself: bool,
    folder: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare two engines: ratios with intervals, a verdict per metric, one line for the whole.

    BASE and HEAD are an engine's name, pypi:VERSION, a library, or git:PATH@REV (a llguidance
    checkout, built by cargo); ENGINE+fallback=on switches the greedy lexeme fallback on. Another
    engine, as of llgbench peers, is compared at the steps whose masks are equal or differ by a
    named class; the rest is counted and named.

    \b
    Examples:
      llgbench compare pypi:1.9.0 pypi:1.9.1
      llgbench compare git:../llguidance@main git:../llguidance@HEAD --budget 120
      llgbench compare fallback+fallback=off fallback+fallback=on --case github-workflow
      llgbench compare --self wheel
      llgbench compare stock ./libllguidance.so --count
      llgbench compare wheel xgrammar:0.2.9 --case json-tool-call

    Exit status: 0 nothing is slower, 1 something is (or masks differ), 2 could not compare.
    """
    if against_itself == (head is not None):
        raise InputError("give BASE and HEAD, or --self and BASE")
    found, where = Wanted(**options).run(base, head, folder)
    _print(found, where, as_json)
    sys.exit(output.EXIT_DIFFERENCE if found.failed else 0)


def _print(found: Comparison, where: Path, as_json: bool) -> None:
    from llgbench.compare import side, words

    if as_json:
        output.print_json({**found.to_json(), "files": str(where)})
        return
    for common in found.common:
        output.echo(words.common_line(common))
    for difference in found.differences:
        for line in words.difference_lines(difference):
            output.echo(line)
    if found.rows and not found.rebuilt:
        if (caution := side.caution(found.base, found.head)) is not None:
            output.echo(f"note: {caution}")
        output.print_table(
            [_row(row, found) for row in found.rows], title=f"{found.base}  →  {found.head}"
        )
    for c in found.counters:
        if c.base != c.head:
            output.echo(f"{c.counter} of {c.case}: {c.base:,} → {c.head:,}")
    if found.counters and all(c.base == c.head for c in found.counters):
        output.echo("work counters are equal in every case")
    _print_functions(found)
    for line in found.lost:
        output.say(f"lost {line}; {found.processes} others are in the table")
    output.echo(words.headline(found))
    if found.self_test and found.rows:
        output.echo(words.floor_text(found.rows, found.plan.threshold, found.allowed))
    if found.verdict == "identical":
        output.say(f"nothing was measured; files in {where}")
        return
    masks = f"{found.steps} masks {'compared' if found.common else 'equal'}"
    output.say(f"{masks}; {found.wall_s:.0f} s, {found.ended}; files in {where}")


def _print_functions(found: Comparison) -> None:
    """Write the functions whose instructions changed most, or why there are none."""
    from llgbench.compare import words

    if (why := words.no_functions(found)) is not None:
        output.echo(why)
    if found.functions:
        rows = [
            {"function": f.function, "base": f.base, "head": f.head, "change": f.head - f.base}
            for f in found.functions
        ]
        output.print_table(rows, title="instructions by function, one process, most changed:")


def _row(row: Row, found: Comparison) -> dict[str, Any]:
    from llgbench.compare import inference, words

    key = (row.case, row.vocab, row.metric)

    as_is = row.unit == "instructions"
    shown: dict[str, Any] = {"case": row.case}
    if len(found.plan.vocabs) > 1:
        shown["vocab"] = row.vocab
    e = row.estimate
    unit = "instructions" if as_is else "µs"
    shown |= {
        "metric": row.metric,
        f"base {unit}": row.base if as_is else microseconds(row.base),
        f"head {unit}": row.head if as_is else microseconds(row.head),
        "ratio": round(e.ratio, 4),
        "95% interval": f"{e.low:.4f} – {e.high:.4f}",
        "verdict": row.verdict,
        "processes": e.processes,
    }
    if as_is:
        by_clock = [r for r in found.clock if (r.case, r.vocab, r.metric) == key]
        shown["by the clock"] = words.ratio_text(by_clock[0].estimate) if by_clock else None
    if found.self_test:
        seen = inference.smallest_visible(e, found.plan.threshold, len(found.rows), found.allowed)
        shown["sees changes of"] = f"{seen:.1%}"
    return shown
