"""``llgbench decode``: what a grammar costs inside llama.cpp's decode loop."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llgbench import output
from llgbench.commands import given
from llgbench.commands.options import limit_options, limits
from llgbench.decode.modes import MODES
from llgbench.errors import InputError, UnknownNameError
from llgbench.output import json_option
from llgbench.shown import microseconds

if TYPE_CHECKING:
    from llgbench.llama.sampler import Selection
    from llgbench.records.entry import Entry

# Repeated from model and sampler, which --help should not load; a test compares.
SELECTIONS = ("greedy", "dist", "common")
SHAPES = ("nano", "tinyllama-1.1b", "llama-3.2-1b", "llama-3.1-8b", "gemma-2b-like")
MAX_THREADS = 512


@click.command("decode")
@click.option("--vocab", "vocabs", multiple=True, help="A vocab by name, or a GGUF file; repeat.")
@click.option("--case", "cases", multiple=True, help="Default: json-tool-call; repeat.")
@click.option("--variant", "variants", multiple=True, help="Default: the four variants.")
@click.option("--engine", default="default", help="NAME, pypi:VERSION, git:PATH@REV, or a library.")
@click.option("--model", type=click.Path(path_type=Path), help="A GGUF file with weights.")
@click.option(
    "--shape", type=click.Choice(SHAPES), default="nano", show_default=True,
    help="Shape of the synthetic model, used without --model.",
)  # fmt: skip
@click.option(
    "--mode", "modes", multiple=True, type=click.Choice(MODES), help="Default: mask-first; repeat."
)
@click.option(
    "--sequences",
    multiple=True,
    type=click.IntRange(1, 256),
    help="Sequences at once; default 1; repeat.",
)
@click.option("--rounds", type=click.IntRange(1, 1000), default=3, show_default=True)
@click.option("--free", is_flag=True, help="Commit what was sampled and check the text.")
@click.option("--agree", is_flag=True, help="Make the trace's token the model's own choice.")
@click.option(
    "--select",
    "selection",
    type=click.Choice(SELECTIONS),
    help="How tokens are chosen; default: greedy; --free: dist.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 100_000),
    default=256,
    help="Most tokens of a --free text.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of what is drawn.")
@click.option(
    "--context", type=click.IntRange(1, 2**31 - 1), help="Tokens per sequence; default: enough."
)
@click.option(
    "--threads",
    type=click.IntRange(1, MAX_THREADS),
    help="Threads that decode; default: all cores.",
)
@click.option(
    "--device", default="cpu", show_default=True,
    help="A device of llgbench doctor's, such as CUDA0, or cuda: the first of its kind.",
)  # fmt: skip
@limit_options("Most seconds for all cases of one vocab; default: 6 hours.")
@click.option("--results", type=click.Path(path_type=Path), help="Default: results/.")
@json_option
def decode_command(
    vocabs: tuple[str, ...], cases: tuple[str, ...], variants: tuple[str, ...], engine: str,
    model: Path | None, shape: str, modes: tuple[str, ...], sequences: tuple[int, ...],
    rounds: int, free: bool, agree: bool, selection: Selection | None, max_tokens: int, seed: int,
    context: int | None, threads: int | None, device: str, time_limit: float | None,
    memory_limit: int | None, results: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Decode with llama.cpp, masked and not, and show where a step's time goes.

    The texts of a case are committed token by token whatever the model would say, with and
    without the grammar, so that both do the same work. Without --model the model is synthetic:
    the vocab's own tokens, random weights, the shape's speed.

    \b
    MODES

    \b
    Examples:
      llgbench decode
      llgbench decode --vocab llama-bpe --mode mask-first --mode overlap --sequences 8
      llgbench decode --model ./my-model.gguf --case github-workflow --mode sample-first
      llgbench decode --free --case json-enum
    """
    from llgbench.decode import plan, recording
    from llgbench.inputs.variant import DEFAULT_VARIANTS

    if model is not None:
        given.refuse("is of the synthetic model, which --model replaces", "shape")
    if not free:
        given.refuse("goes with --free", "max_tokens")
    if device.lower() != "cpu":
        given.refuse("goes with --device cpu, whose memory is the process's", "memory_limit")
    chain = selection or ("dist" if free else "greedy")
    if chain == "greedy":
        given.refuse("is of what is drawn, and a greedy choice draws nothing", "seed")
    request = recording.Request(
        cases=cases or ("json-tool-call",),
        vocabs=vocabs or ((_path(model),) if model else ("llama-bpe",)),
        variants=variants or DEFAULT_VARIANTS,
        engine=engine,
        modes=modes or ("mask-first",),
        sequences=sequences or (1,),
        plan=plan.Plan(
            rounds=rounds, selection=chain, free=free,
            agree=agree, max_tokens=max_tokens, seed=seed,
        ),
        model=model, shape=shape, device=device, context=context or 0, threads=threads or 0,
        limits=limits(recording.SECONDS, time_limit, memory_limit),
    )  # fmt: skip
    _validate_names(request.cases, request.vocabs, request.variants, request.engine, model)
    with output.steps(len(request.vocabs) * len(request.cases), "decoding") as progress:
        record = recording.record(request, results, progress.doing)
    if record.entries and all(entry.unavailable for entry in record.entries):
        first = record.entries[0]
        raise InputError(f"nothing could be measured: {first.configuration}: {first.unavailable}")
    rows = [row(entry) for entry in record.entries]
    if as_json:
        output.print_json(
            {"record": str(record.path), "provenance": dict(record.provenance), "entries": rows}
        )
        return
    labels = [e.facts["model"] for e in record.entries if e.unavailable is None]
    title = "Mean times of a step in µs"
    if labels:
        what = labels[0]
        device_name = what["device"].get("name", what["device"]["kind"])
        title += f"; model: {what['label']}, {what['parameters'] / 1e6:,.0f}M weights"
        title += f"{' (random)' if what['synthetic'] else ''}, on {device_name}"
    output.print_table(rows, title=title)
    output.say(f"record: {record.path}")


decode_command.help = (decode_command.help or "").replace(
    "MODES", "\n    ".join(f"{mode.name:16}{mode.summary}" for mode in MODES.values())
)


def _path(model: Path) -> str:
    """Return a model's path as the name of its vocab, which no name of the catalogue is."""
    return str(model) if os.sep in str(model) else os.path.join(os.curdir, model)


def row(entry: Entry) -> dict[str, Any]:
    """Return an entry as a row of the table."""
    from llgbench.decode import plan, summary

    c = entry.configuration
    of_entry = summary.summarize(entry)
    found: dict[str, Any] = {"case": c.case, "vocab": c.vocab, "variant": c.variant}
    if c.engine != "default":
        found["engine"] = c.engine
    found |= {"mode": entry.facts.get("mode"), "seqs": None, "steps": None, "tokens": None}
    found |= {"tokens/s": None, "step": None}
    found |= dict.fromkeys(plan.PARTS)
    found |= {"grammar %": None, "own %": None, "forced": None, "missed %": None}
    if of_entry is not None:
        found["seqs"] = entry.facts["plan"]["sequences"]
        found["steps"], found["tokens"] = of_entry.steps, of_entry.tokens
        found["tokens/s"] = round(of_entry.per_second, 1)
        found["step"] = microseconds(of_entry.wall)
        found |= {name: microseconds(of_entry.parts[name]) for name in plan.PARTS}
        if c.variant != plan.UNCONSTRAINED:
            found["grammar %"] = float(f"{100 * of_entry.share:.3g}")
            found["forced"] = of_entry.forced
        if found["mode"] == "overlap":
            found["mask"] = microseconds(of_entry.hidden_mask)
        found["own %"] = float(f"{100 * of_entry.overhead:.2g}")
        if of_entry.missed is not None:
            found["missed %"] = float(f"{100 * of_entry.missed:.3g}")
    found["verdict"] = summary.verdict(entry)
    return found


def _validate_names(
    cases: tuple[str, ...], vocabs: tuple[str, ...], variants: tuple[str, ...], engine: str,
    model: Path | None,
) -> None:  # fmt: skip
    """Refuse an unknown name before a model is made."""
    from llgbench.engines import registry
    from llgbench.engines.facts import facts
    from llgbench.errors import ModelError, UnavailableError
    from llgbench.inputs import case_file, catalogue, variant

    for name in variants:
        variant.get(name)
    for name in cases:
        case_file.load(name)
    if model is not None and not model.is_file():
        raise ModelError(f"{model}: no such model")
    known = catalogue.vocabs()
    for name in vocabs:
        if name not in known and not catalogue.is_path(name):
            raise UnknownNameError("vocab", name, known)
    if engine != "default":
        try:
            facts(registry.locate(engine))  # a library that does not survive it ends a worker
        except UnavailableError as error:
            raise InputError(str(error)) from None
