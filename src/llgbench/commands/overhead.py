"""``llgbench overhead``: what the greedy lexeme fallback costs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from llgbench import output
from llgbench.errors import UnavailableError
from llgbench.output import json_option


@click.command("overhead")
@click.option("--vocab", default="llama-bpe", show_default=True, help="By name, or a GGUF file.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=12, show_default=True)
@click.option("--longest", type=click.IntRange(16), default=16384, show_default=True, help="Top n.")
@json_option
def overhead_command(vocab: str, rounds: int, longest: int, as_json: bool) -> None:
    """Measure the fallback off against stock, on against off, and the checkpoint's curve by n.

    Ratios are of warm replays taken in turn in one process, the median of the rounds. The curve
    gives, in µs, the dearest and the median step of a b{n} d, each step's median over replays:
    with the other reading kept in step beyond 64 bytes (shadow), and with replay only. It is
    measured on llama-spm, where no bytes are forced.

    \b
    Examples:
      llgbench overhead
      llgbench overhead --vocab qwen2 --longest 1024 --json
    """
    from llgbench import overhead, registry

    lengths = tuple(n for n in overhead.LENGTHS if n <= longest)
    try:
        with output.steps(len(overhead.JSON_CASES), "JSON cases") as progress:
            ratios: list[dict[str, Any]] = []
            for found in overhead.on_json(vocab, rounds):
                ratios.append({k: _short(v) for k, v in asdict(found).items()})
                progress.done()
        with output.steps(2 * len(lengths), "checkpoints") as progress:
            points: list[dict[str, Any]] = []
            for point in overhead.curve(lengths, doing=progress.doing):
                points.append(
                    {
                        "n": point.n,
                        "strategy": point.strategy,
                        "dearest": output.microseconds(point.dearest_ns),
                        "median": output.microseconds(point.median_ns),
                        "steps": point.steps,
                    }
                )
                progress.done()
    except UnavailableError as error:
        raise UnavailableError(f"{error} ({registry.why_no_fallback()})") from None
    if as_json:
        output.print_json({"vocab": vocab, "ratios": ratios, "checkpoints": points})
        return
    output.print_table(ratios, title="Where no boundary is pending: off over stock, on over off")
    click.echo()
    output.print_table(points, title=f"Checkpoints on {overhead.CURVE_VOCAB}: a step in µs, by n")


def _short(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value
