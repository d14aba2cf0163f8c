"""What the ASV batch benchmarks call: a batch is measured when its first value is asked for.

Cheap to import: ASV's discovery reads the parameters in every process.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from llgbench.asv.cells import Metrics, Run, Values, kept, row

if TYPE_CHECKING:
    from llgbench.decode.batch_recording import Request

CASE, VOCAB, VARIANT = "json-tool-call", "llama-bpe", "greedy_tokenize"
SEQUENCES = ("1", "8", "64")
THREADS = ("1", "2")
DRAFT = 4


def batch(run: Run, sequences: str, threads: str) -> Metrics:
    """Return the metrics of one batch, plain and with drafts.

    Raises:
        NotImplementedError: it is wrong, or llguidance or the vocabulary is not here.
    """
    name = f"{sequences} sequences, {threads} threads"
    values = kept(
        run, f"batch-{sequences}-{threads}",
        lambda: _measured(run, name, int(sequences), int(threads)),
    )  # fmt: skip
    return row(values, name)


def request(sequences: int, threads: int, draft: int, steps: int = 1000) -> Request:
    """Return what is measured."""
    from llgbench.decode.batch_recording import Request

    return Request(
        (CASE,), (VOCAB,), (VARIANT,), sequences=(sequences,), threads=(threads,), steps=steps,
        draft=draft,
    )  # fmt: skip


def _measured(run: Run, name: str, sequences: int, threads: int) -> Values:
    from llgbench.decode.batch_recording import record
    from llgbench.decode.batch_summary import summarize, verdict
    from llgbench.errors import UnavailableError

    times: dict[str, float | None] = {}
    for draft in (0, DRAFT):
        try:
            recorded = record(
                request(sequences, threads, draft), Path(run.results) if run.results else None
            )
        except UnavailableError as error:
            return {name: str(error)}
        for entry in recorded.entries:
            if entry.facts["method"] != "pool":
                continue
            summary = summarize(entry)
            if summary is None:
                return {name: verdict(entry)}
            if draft:
                times |= {
                    "validate": summary.validate,
                    "rollback": summary.rollback,
                    "drafted": summary.ahead,
                }
            else:
                times |= {
                    "step_p50": summary.p50,
                    "step_p99": summary.p99,
                    "consume": summary.consume,
                    "clone": summary.clone,
                }
    return {name: dict(times)}
