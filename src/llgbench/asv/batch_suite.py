"""What the ASV batch benchmarks call; see suite.py for why it is all measured at once.

Cheap to import: ASV's discovery reads the parameters in every process.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from llgbench.asv.suite import Values

if TYPE_CHECKING:
    from llgbench.records.record import Entry

CASE, VOCAB, VARIANT = "json-tool-call", "llama-bpe", "greedy_tokenize"
SEQUENCES = (1, 8, 64)
THREADS = (1, 2)
DRAFT = 4


def parameters() -> list[str]:
    """Return ASV's parameters: ``sequences | threads``."""
    return [f"{n} | {t}" for n in SEQUENCES for t in THREADS]


def measure(
    results: Path | None = None, sequences: tuple[int, ...] = SEQUENCES, steps: int = 1000
) -> Values:
    """Run the batches, plain and with drafts, into records and return every tracked value.

    Raises:
        UnavailableError: llguidance or the vocabulary is not here.
    """
    from llgbench.decode.batch_recording import Request, record

    found: Values = {}
    for draft in (0, DRAFT):
        request = Request(
            (CASE,), (VOCAB,), (VARIANT,), sequences=sequences, threads=THREADS, steps=steps,
            draft=draft,
        )  # fmt: skip
        for entry in record(request, results).entries:
            if entry.facts["method"] == "pool":
                _add(found, entry)
    return found


def _add(found: Values, entry: Entry) -> None:
    from llgbench.decode.batch_recording import summarize, verdict

    summary = summarize(entry)
    name = f"{entry.facts['sequences']} | {entry.facts['threads']}"
    known = found.get(name, {})
    if summary is None:
        found[name] = verdict(entry)
        return
    if isinstance(known, str):
        return
    times = (
        {"validate": summary.validate, "rollback": summary.rollback, "drafted": summary.ahead}
        if entry.facts["draft"]
        else {
            "step_p50": summary.p50,
            "step_p99": summary.p99,
            "consume": summary.consume,
            "clone": summary.clone,
        }
    )
    found[name] = {**known, **{metric: ns for metric, ns in times.items() if ns is not None}}
