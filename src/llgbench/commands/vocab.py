"""``llgbench vocab``: fetch vocabularies and compare their token tables."""

from __future__ import annotations

from dataclasses import asdict

import click

from llgbench import output
from llgbench.output import json_option


@click.group("vocab")
def vocab_group() -> None:
    """Fetch vocabularies and compare their token tables."""


@vocab_group.command("fetch")
def vocab_fetch() -> None:
    """Bring the vocabularies of vocabs/vocabs.toml, verify them, reuse what is there."""
    from llgbench.inputs import catalogue

    catalogue.fetch(output.say)


@vocab_group.command("list")
@json_option
def vocab_list(as_json: bool) -> None:
    """List the catalogue: name, kind, tokens, whether fetched."""
    from llgbench.inputs import catalogue

    rows = [
        {"vocab": e.name, "kind": e.kind, "tokens": e.tokens, "fetched": e.here, "sha256": e.sha256}
        for e in catalogue.vocabs().values()
    ]
    if not as_json:
        for row in rows:
            row["sha256"] = str(row["sha256"])[:12]
    output.print_table(rows, as_json=as_json)


@vocab_group.command("table")
@click.argument("names", nargs=-1, metavar="[VOCAB]...")
@json_option
def vocab_table(names: tuple[str, ...], as_json: bool) -> None:
    """Count the tokens whose bytes llama_detokenize gets wrong (all vocabs by default).

    A token "lost a space" where its piece begins with one and its detokenized bytes do not; a run
    of spaces that only got shorter differs without losing.

    \b
    Examples:
      llgbench vocab table llama-spm llama-bpe
      llgbench vocab table --json
    """
    from llgbench.inputs import catalogue
    from llgbench.llama import trial, vocab
    from llgbench.measure import probes

    rows = []
    for name in names or tuple(catalogue.vocabs()):
        trial.rehearse(name)
        with vocab.open_vocab(name) as opened:
            rows.append(asdict(probes.token_bytes(opened)))
    output.print_table(rows, as_json=as_json)
