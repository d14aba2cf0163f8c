"""``llgbench masks``: which masks a change of an engine makes cheaper or costlier, step by step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llgbench import output
from llgbench.commands import given
from llgbench.errors import InputError
from llgbench.output import json_option

if TYPE_CHECKING:
    from llgbench.compare.masks import Masks

# As small as a tool call, and with numbers, nested objects and arrays.
CASES = ("json-tool-call", "json-nested")
MASKBENCH_VOCAB = "llama-bpe"


@click.command("masks")
@click.argument("base", required=False)
@click.argument("head", required=False)
@click.option("--vocab", "vocabs", multiple=True, help="Default: all of the catalogue; repeat.")
@click.option("--case", "cases", multiple=True, help=f"Default: {' and '.join(CASES)}; repeat.")
@click.option(
    "--maskbench",
    type=click.Path(path_type=Path),
    help=f"A folder of MaskBench files, counted on {MASKBENCH_VOCAB} as well.",
)
@click.option("--variant", default="greedy_tokenize", show_default=True, help="Bridge of both.")
@click.option(
    "--seeds", type=click.IntRange(1, 20), default=2, show_default=True,
    help="Processes for each text, each with hash seeds of its own.",
)  # fmt: skip
@click.option(
    "--output", "path", type=click.Path(path_type=Path, dir_okay=False),
    default=Path("masks.json"), show_default=True, help="File of the counts.",
)  # fmt: skip
@click.option(
    "--from", "stored", type=click.Path(path_type=Path), help="Show stored counts; count nothing."
)
@click.option("--markdown", is_flag=True, help="Write the table as Markdown.")
@json_option
def masks_command(
    base: str | None,
    head: str | None,
    vocabs: tuple[str, ...],
    cases: tuple[str, ...],
    maskbench: Path | None,
    variant: str,
    seeds: int,
    path: Path,
    stored: Path | None,
    markdown: bool,
    as_json: bool,
) -> None:
    """Count every mask of two engines in instructions, on many vocabularies and schemas.

    Each text is replayed once by both engines, on fresh matchers under the same hash seeds, after
    the masks of all texts were compared bit by bit. Requires valgrind. Numbers do not depend on
    how busy the machine is.

    \b
    Examples:
      llgbench masks stock first-byte --maskbench maskbench/data
      llgbench masks pypi:1.9.0 pypi:1.9.1 --vocab llama-bpe --case github-workflow
      llgbench masks --from masks.json --markdown

    Exit status: 0 no text's masks are slower in all; 1 one's are, or masks differ; 2 could not
    count.
    """
    from llgbench.compare import masks

    if stored is not None:
        if base is not None:
            raise InputError("give BASE and HEAD, or --from, not both")
        given.refuse(
            "does not go with --from, which counts nothing",
            "vocabs", "cases", "maskbench", "variant", "seeds", "path",
        )  # fmt: skip
        found = masks.read(stored)
    else:
        if base is None or head is None:
            raise InputError("give BASE and HEAD, or --from and a file of stored counts")
        from llgbench.compare import mask_counting
        from llgbench.inputs import catalogue

        plan = mask_counting.Plan(
            vocabs=tuple(dict.fromkeys(vocabs)) or tuple(catalogue.vocabs()),
            cases=tuple(dict.fromkeys(cases)) or CASES,
            maskbench=maskbench,
            maskbench_vocab=MASKBENCH_VOCAB,
            variant=variant,
            seeds=seeds,
        )
        found = mask_counting.run(base, head, plan, _progress, output.say)
        masks.write(found, path)
        output.say(f"the counts of every mask are in {path}")
    _print(found, markdown, as_json)
    sys.exit(output.EXIT_DIFFERENCE if found.failed else 0)


def _progress(done: int, total: int, vocab: str) -> None:
    output.quiet_say(f"{done} of {total} counted: {vocab}")


def _print(found: Masks, markdown: bool, as_json: bool) -> None:
    from llgbench.compare import masks
    from llgbench.shown import markdown_table

    table = masks.rows(found)
    if as_json:
        output.print_json({"rows": table, "notes": masks.notes(found)})
        return
    if markdown:
        lines = markdown_table(list(table[0]), [[str(c) for c in row.values()] for row in table])
        output.echo("\n".join([*lines, "", *(f"- {note}" for note in masks.notes(found))]))
        return
    output.print_table(table, title=f"{found.base}  →  {found.head}")
    for note in masks.notes(found):
        output.echo(note)
