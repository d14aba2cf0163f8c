"""``llgbench overhead``: what the greedy lexeme fallback costs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from llgbench import output
from llgbench.commands import given
from llgbench.errors import UnavailableError
from llgbench.output import json_option
from llgbench.shown import microseconds

Tables = dict[str, list[dict[str, Any]]]


@click.command("overhead")
@click.option(
    "--vocab", default="llama-bpe", show_default=True, help="A vocab by name, or a GGUF file."
)
@click.option("--rounds", type=click.IntRange(1, 1000), default=12, show_default=True)
@click.option(
    "--longest",
    type=click.IntRange(16),
    default=16384,
    show_default=True,
    help="Largest n of a b{n} d.",
)
@click.option("--count", is_flag=True, help="Count instructions under callgrind (some minutes).")
@click.option("--results", type=click.Path(path_type=Path), help="With --count. Default: results/.")
@json_option
def overhead_command(
    vocab: str, rounds: int, longest: int, count: bool, results: Path | None, as_json: bool
) -> None:
    """Measure the fallback off against stock, on against off, and what a pending boundary costs.

    Ratios are of warm replays taken in turn in one process, the median of the rounds. Masks with a
    boundary pending stand beside the masks that its two readings have alone, the best of 200 each,
    in turn. The curve gives the costliest and the median step of a b{n} d, each step's median over
    replays: with the other reading kept as a level beyond 64 bytes (shadow), or only read again.
    The costliest is also taken with the processor's caches emptied before it, since the longer n,
    the longer ago its code was last used. It is measured on llama-spm, where no bytes are forced.
    Memory is what a pending boundary adds to the heap in use, by n.

    With --count ratios and curve are in instructions, cold and warm, with the engine's own
    counters, and a first table holds them against their limits. It is kept for llgbench report.

    \b
    Examples:
      llgbench overhead
      llgbench overhead --count
      llgbench overhead --vocab qwen2 --longest 1024 --json
    """
    from llgbench import files, paths
    from llgbench.engines import registry
    from llgbench.errors import RecordError
    from llgbench.fallback import overhead
    from llgbench.fallback import summary as overhead_summary
    from llgbench.llama.trial import rehearse
    from llgbench.measure import callgrind, provenance

    if count:
        given.refuse("is of times, and --count takes none", "rounds")
        callgrind.require()
    else:
        given.refuse("goes with --count", "results")
    rehearse(vocab)
    try:
        overhead.engines()
    except UnavailableError as error:
        raise UnavailableError(f"{error} ({registry.why_no_fallback()})") from None
    if count:
        place = results or paths.root() / "results"
        with files.folder(overhead_summary.path_in(place).parent, error=RecordError):
            found = _counted(vocab, longest)
            found = {"summary": overhead_summary.summary(found), **found}
            kept = {"vocab": vocab, "provenance": provenance.collect(paths.root()), **found}
            output.say(f"kept: {overhead_summary.save(place, kept)}")
    else:
        found = _timed(vocab, rounds, longest)
    if as_json:
        output.print_json({"vocab": vocab, **found})
        return
    for at, (name, rows) in enumerate(found.items()):
        if at:
            output.echo()
        output.print_table(rows, title=_title(name, vocab, count))


def _title(name: str, vocab: str, count: bool) -> str:
    from llgbench.fallback.states import CHECKPOINT_VOCAB
    from llgbench.fallback.summary import TITLE

    unit = "instructions" if count else "µs"
    return {
        "summary": f"{TITLE}: limits, and the worst that was measured on {vocab}",
        "ratios": f"Where no boundary is pending: off over stock, on over off, {vocab}",
        "pending": f"Masks with a boundary pending, and of its two readings alone, {vocab}",
        "checkpoints": f"Checkpoints on {CHECKPOINT_VOCAB}: a step in {unit}, by n",
        "memory": f"A boundary pending over n bytes, {CHECKPOINT_VOCAB}: bytes of heap",
    }[name]


def _timed(vocab: str, rounds: int, longest: int) -> Tables:
    from llgbench.fallback import overhead
    from llgbench.fallback.states import LENGTHS

    lengths = tuple(n for n in LENGTHS if n <= longest)
    found: Tables = {"ratios": [], "pending": [], "checkpoints": []}
    with output.steps(len(overhead.JSON_CASES), "JSON cases") as progress:
        for ratios in overhead.on_json(vocab, rounds):
            found["ratios"].append({k: _short(v) for k, v in asdict(ratios).items()})
            progress.done()
    with output.steps(2 * len(lengths), "checkpoints") as progress:
        for point in overhead.curve(lengths, doing=progress.doing):
            found["checkpoints"].append(
                {
                    "n": point.n,
                    "strategy": point.strategy,
                    "costliest": microseconds(point.costliest_ns),
                    "caches emptied": microseconds(point.emptied_ns),
                    "median": microseconds(point.median_ns),
                    "steps": point.steps,
                }
            )
            progress.done()
    for times in overhead.pending(vocab):
        found["pending"].append(
            {
                "state": times.state,
                "pending": microseconds(times.both_ns),
                "longer alone": microseconds(times.longer_ns),
                "other alone": microseconds(times.other_ns),
                "time / costlier": _short(times.over_costlier),
            }
        )
    return {**found, "memory": _memory(lengths)}


def _counted(vocab: str, longest: int) -> Tables:
    from llgbench.fallback import counted, overhead
    from llgbench.fallback.states import LENGTHS

    lengths = tuple(n for n in LENGTHS if n <= longest)
    found: Tables = {}
    output.quiet_say("counting the JSON cases")
    found["ratios"] = [
        {k: _short(v, 4) for k, v in asdict(ratios).items() if k != "vocab"}
        for ratios in counted.on_json(vocab)
    ]
    output.quiet_say("counting masks with a boundary pending")
    times = {t.state: t for t in overhead.pending(vocab)}
    found["pending"] = [
        {
            "state": c.state,
            "pending": c.both,
            "longer alone": c.longer,
            "other alone": c.other,
            "instructions / longer": _short(c.over_longer),
            "instructions / costlier": _short(c.over_costlier),
            "time / costlier": _short(times[c.state].over_costlier),
        }
        for c in counted.pending(vocab)
    ]
    output.quiet_say("counting the steps of checkpoints")
    found["checkpoints"] = [
        {**{k: v for k, v in asdict(point).items() if k != "work"}, **point.work}
        for point in counted.curve(lengths)
    ]
    return {**found, "memory": _memory(lengths)}


def _memory(lengths: tuple[int, ...]) -> list[dict[str, Any]]:
    from llgbench.fallback import memory, overhead

    _, engine = overhead.engines()
    return [
        {"n": m.n, "option off": m.off, "option on": m.on, "beyond": m.beyond}
        for m in memory.measure(engine, lengths)
    ]


def _short(value: Any, digits: int = 3) -> Any:
    return round(value, digits) if isinstance(value, float) else value
