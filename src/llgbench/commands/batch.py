"""``llgbench batch``: how long a server waits for the slowest mask of a batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llgbench import output, shown
from llgbench.commands import given
from llgbench.commands.decode import SHAPES, _validate_names
from llgbench.commands.options import limit_options, limits, numbers
from llgbench.errors import InputError
from llgbench.output import EXIT_DIFFERENCE, json_option

if TYPE_CHECKING:
    from llgbench.records.entry import Entry


@click.command("batch")
@click.option("--case", "cases", multiple=True, help="Default: json-tool-call; repeat.")
@click.option("--vocab", "vocabs", multiple=True, help="A vocab by name, or a GGUF file; repeat.")
@click.option("--variant", "variants", multiple=True, help="Default: greedy_tokenize; repeat.")
@click.option("--engine", default="default", help="NAME, pypi:VERSION, git:PATH@REV, or a library.")
@click.option(
    "--sequences", type=numbers(1, 4096), default="1,8,64,256", show_default=True,
    help="Numbers of sequences, separated by commas.",
)  # fmt: skip
@click.option(
    "--threads", type=numbers(1, 512), default="1,2", show_default=True,
    help="Numbers of threads that compute masks, separated by commas.",
)  # fmt: skip
@click.option(
    "--steps", type=click.IntRange(1, 1_000_000), default=1000, show_default=True,
    help="Steps of each batch; below 1000 there is no p99.",
)  # fmt: skip
@click.option("--draft", type=click.IntRange(1, 64), help="Tokens of a draft, per step.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Seed of what drafts get wrong.")
@click.option("--cold", is_flag=True, help="Clone a matcher that has seen no text.")
@click.option("--model", type=click.Path(path_type=Path), help="A GGUF file; its decode is timed.")
@click.option("--shape", type=click.Choice(SHAPES), help="A synthetic model in its place.")
@click.option("--device", default="cpu", show_default=True, help="Where that model's layers are.")
@limit_options("Most seconds for the batches of one number of threads; default: 1 hour.")
@click.option("--results", type=click.Path(path_type=Path), help="Default: results/.")
@json_option
def batch_command(
    cases: tuple[str, ...], vocabs: tuple[str, ...], variants: tuple[str, ...], engine: str,
    sequences: tuple[int, ...], threads: tuple[int, ...], steps: int, draft: int | None,
    seed: int | None, cold: bool, model: Path | None, shape: str | None, device: str,
    time_limit: float | None, memory_limit: int | None, results: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Time the masks of many sequences at once, as a server computes them.

    Each sequence has a matcher of its own, a clone of one compiled grammar, and is at its own place
    of one of the case's texts. A step ends when the slowest mask is there: a server's decode must
    be no shorter. With --model or --shape that decode is timed beside it.

    \b
    pool                  llgbench's own threads, a clone of one matcher per sequence
    llg_par_compute_mask  llguidance's function; its clones share one lexer, behind a lock

    With --draft K, each sequence validates a draft of K tokens at each step, computes a mask for
    each valid one, and takes back those that the model refuses.

    Every mask is compared with that of a single matcher; where one differs the batch has no times,
    and the exit status is 1.

    \b
    Examples:
      llgbench batch
      llgbench batch --case github-workflow --sequences 1,64 --threads 1,2,4 --shape llama-3.2-1b
      llgbench batch --draft 4 --vocab qwen2
    """
    from llgbench.decode import batch_recording

    if model is not None and shape is not None:
        raise InputError("give --model or --shape, not both")
    if model is None and shape is None:
        given.refuse("is of a model's: give --model or --shape", "device")
    if draft is None:
        given.refuse("is of drafts: give --draft", "seed")
    default = batch_recording.Request()
    request = batch_recording.Request(
        cases=cases or default.cases,
        vocabs=vocabs or default.vocabs,
        variants=variants or default.variants,
        engine=engine, sequences=sequences, threads=threads, steps=steps, draft=draft or 0,
        seed=seed or 0, cold=cold, model=model, shape=shape, device=device,
        limits=limits(batch_recording.SECONDS, time_limit, memory_limit),
    )  # fmt: skip
    _validate_names(request.cases, request.vocabs, request.variants, request.engine, model)
    pieces = len(request.cases) * len(request.vocabs) * len(request.variants) * len(threads)
    with output.steps(pieces, "batches") as progress:
        record = batch_recording.record(request, results, progress.doing, progress.done)
    if all(entry.unavailable for entry in record.entries):
        first = record.entries[0]
        raise InputError(f"nothing could be measured: {first.configuration}: {first.unavailable}")
    rows = [row(entry) for entry in record.entries]
    if as_json:
        output.print_json(
            {"record": str(record.path), "provenance": dict(record.provenance), "batches": rows}
        )
    else:
        output.print_table(rows, title=_title(record.entries[0], request.shape or request.model))
        output.say(f"record: {record.path}")
    if any(entry.facts.get("fault") for entry in record.entries):
        raise SystemExit(EXIT_DIFFERENCE)


def _title(entry: Entry, model: object) -> str:
    decoded = entry.facts.get("decode")
    if model is None or not decoded:
        return "Times in µs; no decode was timed (--shape or --model)"
    return (
        f"Times in µs; decode: {decoded['model']} on {decoded['device']}, one token per sequence, "
        f"{decoded['threads']} threads"
    )


def row(entry: Entry) -> dict[str, Any]:
    """Return an entry as a row of the table; times in microseconds."""
    from llgbench.decode import batch_summary

    c, facts = entry.configuration, entry.facts
    found: dict[str, Any] = {"case": c.case, "vocab": c.vocab, "variant": c.variant}
    if c.engine != "default":
        found["engine"] = c.engine
    found |= {"seqs": facts["sequences"], "threads": facts["threads"], "masks by": facts["method"]}
    summary = batch_summary.summarize(entry)
    times = {"step p50": "p50", "step p99": "p99", "step max": "most", "mask avg": "mask"}
    if facts["draft"]:
        times |= {"validate avg": "validate", "drafted avg": "ahead", "rollback avg": "rollback"}
    times |= {"consume avg": "consume", "clone avg": "clone", "decode p50": "decode"}
    for name, of in times.items():
        found[name] = shown.microseconds(getattr(summary, of)) if summary else None
    for name, of in (("busy %", "busy"), ("late %", "late")):
        share = getattr(summary, of) if summary else None
        found[name] = None if share is None else float(f"{100 * share:.3g}")
    found["verdict"] = batch_summary.verdict(entry)
    return found
