"""``llgbench check``: are masks and acceptance right?"""

from __future__ import annotations

import click

from llgbench import output
from llgbench.output import EXIT_DIFFERENCE, json_option


@click.command("check")
@click.option(
    "--vocab", "vocabs", multiple=True, help="Only these (default: all of the catalogue)."
)
@click.option("--variant", "variants", multiple=True, help="Only these (default: all five).")
@click.option("--case", "cases", multiple=True, help="Only these (default: all).")
@click.option("--masks", is_flag=True, help="Also judge every mask of the cases on these vocabs.")
@json_option
def check(
    vocabs: tuple[str, ...], variants: tuple[str, ...], cases: tuple[str, ...], masks: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Check masks and acceptance: the probes on every vocab and variant, and every case's texts.

    "spaced" counts tokens that /[.a-z]{2,6}/ "!" allows first though their real bytes hold a
    space; "forced" are the tokens that "hello world" allows first, right where each is a prefix;
    "literal" says what a literal becomes that is spelled as a special token is named.
    Exit status 1 where a case's text is not accepted or rejected as its case.toml says, or a
    variant with exact bytes allows what it must not.

    \b
    Examples:
      llgbench check --vocab llama-spm
      llgbench check --json > check.json
    """
    from llgbench.measure import correctness

    found = correctness.check(vocabs, variants, cases, masks=masks, show=output.steps)
    if as_json:
        output.print_json(found.to_json())
    else:
        output.print_table(found.probe_rows(), title="Probes, by vocab and variant")
        click.echo()
        output.print_table(found.text_rows(), title="Texts, by case")
        if masks:
            click.echo()
            output.print_table(found.mask_rows(), title="Masks, by case, vocab and variant")
    for line in found.unexpected:
        output.say(f"not as recorded: {line}")
    if found.unexpected:
        raise SystemExit(EXIT_DIFFERENCE)
