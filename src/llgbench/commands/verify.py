"""``llgbench verify``: do the variants make a model write what the grammar says?"""

from __future__ import annotations

from dataclasses import asdict

import click

from llgbench import output
from llgbench.commands import given
from llgbench.errors import InputError
from llgbench.output import EXIT_DIFFERENCE, json_option


@click.command("verify")
@click.option("--vocab", "vocabs", multiple=True, help="Only these (default: one of each kind).")
@click.option("--variant", "variants", multiple=True, help="Only these (default: the four).")
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of what the model draws."
)
@click.option("--texts", "show_texts", is_flag=True, help="Also show what came out.")
@json_option
def verify_command(
    vocabs: tuple[str, ...], variants: tuple[str, ...], seed: int, show_texts: bool, as_json: bool
) -> None:
    """Let a synthetic model write three texts under each variant, and judge what it wrote.

    The cases are a forced literal, a JSON enumeration, and a forced skeleton around a free
    region. "greedy" says whether llguidance was left without a tokenize_fn. Exit status 1 where a
    variant that should be right is not, 2 where nothing could be verified.

    \b
    Examples:
      llgbench verify
      llgbench verify --vocab llama-spm --texts
    """
    if as_json:
        given.refuse("is for the table; --json has the texts in any event", "show_texts")
    from llgbench.decode import verify
    from llgbench.inputs.variant import DEFAULT_VARIANTS

    chosen_vocabs = vocabs or verify.VOCABS
    chosen_variants = variants or DEFAULT_VARIANTS
    with output.steps(len(chosen_vocabs) * len(chosen_variants), "verifying") as progress:
        found = []
        for item in verify.verify(chosen_vocabs, chosen_variants, seed=seed, doing=progress.doing):
            found.append(item)
            progress.done()
    reasons = [v.unavailable for v in found]
    if found and all(reason is not None for reason in reasons):
        raise InputError(f"nothing could be verified: {found[0].vocab}: {reasons[0]}")
    if as_json:
        output.print_json([asdict(item) for item in found])
    else:
        output.print_table(
            [
                {
                    "vocab": v.vocab, "kind": v.kind, "variant": v.variant,
                    "passed": f"{v.passed}/{v.cases}" if v.unavailable is None else None,
                    "llguidance errors": v.errors if v.unavailable is None else None,
                    "grammar dropped": v.dropped if v.unavailable is None else None,
                    "greedy": v.greedy,
                    "verdict": f"not available: {v.unavailable}" if v.unavailable is not None
                    else "right" if v.right else "wrong",
                }
                for v in found
            ],
            title="Synthetic nano models, random weights, under each variant",
        )  # fmt: skip
        if show_texts:
            output.echo()
            output.print_table(
                [
                    {"vocab": v.vocab, "variant": v.variant, "case": name, "outcome": outcome,
                     "text": repr((v.texts or {})[name])}
                    for v in found for name, outcome in (v.outcomes or {}).items()
                ]
            )  # fmt: skip
    unexpected = [v for v in found if not v.expected]
    for v in unexpected:
        output.say(f"not as recorded: {v.variant} on {v.vocab} passes {v.passed} of {v.cases}")
    if unexpected:
        raise SystemExit(EXIT_DIFFERENCE)
