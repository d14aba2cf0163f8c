"""The quick grid for ASV's benchmarks: cells of a case and a vocab, and the JSON cases pooled.

A cell is measured under all variants, interleaved, as ``llgbench run`` does. What a run of ASV has
measured is one record of results/records, which grows by a cell at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llgbench.asv.cells import Metrics, Run, Value, Values, kept, row, samples
from llgbench.inputs.configuration import (
    CHECKPOINTS,
    QUICK_JSON_CASES,
    QUICK_LEXER_CASES,
    QUICK_VOCABS,
    Configuration,
    grid,
)
from llgbench.inputs.variant import DEFAULT_VARIANTS

if TYPE_CHECKING:
    from llgbench.measure.recording import Recorded
    from llgbench.records.entry import Entry

# The axes of the benchmarks, as ASV takes them: strings, since it keys results by their repr.
JSON_CASES = list(QUICK_JSON_CASES)
LEXER_CASES = list(QUICK_LEXER_CASES)
LENGTHS = [case.removeprefix("checkpoint@") for case in CHECKPOINTS]
VOCABS = list(QUICK_VOCABS)
VARIANTS = list(DEFAULT_VARIANTS)
# What the lexer does depends little on the vocab; its cases are measured on one.
LEXER_VOCABS = ["llama-bpe"]

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 99.9, "max": 100.0}

# The vocab of the run by which the suite itself is measured.
_HARNESS_VOCAB = "llama-bpe"


def cell(run: Run, case: str, vocab: str, variant: str) -> Metrics:
    """Return the metrics of a cell under a variant; measure the cell where this run has not.

    Raises:
        NotImplementedError: it has none, or no verdict on any mask.
    """
    return row(_cell(run, case, vocab), str(Configuration(case, vocab, variant)))


def pooled(run: Run, vocab: str, variant: str) -> Metrics:
    """Return the metrics of the JSON cases on a vocab pooled, as the field does.

    Raises:
        NotImplementedError: no case has right masks under the variant.
    """

    def measure() -> Values:
        for case in QUICK_JSON_CASES:
            _cell(run, case, vocab)
        entries = _stored(run)
        return {
            str(Configuration("json", vocab, name)): pool(_of(entries, vocab, name))
            for name in DEFAULT_VARIANTS
        }

    values = kept(run, f"json on {vocab}", measure)
    return row(values, str(Configuration("json", vocab, variant)))


def harness(run: Run) -> Metrics:
    """Return what the suite itself costs, from a run of the JSON cases on one vocab."""

    def measure() -> Values:
        with tempfile.TemporaryDirectory() as folder:
            recorded = _record(
                [
                    Configuration(case, _HARNESS_VOCAB, variant)
                    for case in QUICK_JSON_CASES
                    for variant in DEFAULT_VARIANTS
                ],
                Path(folder),
            )
        tally = recorded.tally
        return {
            "harness": {
                "overhead": tally.wall_ns / max(tally.inside_ns, 1),
                "empty_step": float(recorded.record.provenance["empty_step_wall_ns"]),
            }
        }

    return row(kept(run, "harness", measure), "harness")


def _cell(run: Run, case: str, vocab: str) -> Values:
    def measure() -> Values:
        listed = [Configuration(case, vocab, variant) for variant in DEFAULT_VARIANTS]
        with tempfile.TemporaryDirectory() as folder:
            entries = _record(listed, Path(folder)).record.entries
        _store(run, entries)
        return {str(entry.configuration): of_entry(entry) for entry in entries}

    return kept(run, f"{case} on {vocab}", measure)


def _record(configurations: Sequence[Configuration], results: Path) -> Recorded:
    from llgbench.measure import recording

    return recording.record(configurations, recording.QUICK, results=results)


def _folder(run: Run) -> Path:
    from llgbench import paths

    return (Path(run.results) if run.results else paths.root() / "results") / "records"


def _store(run: Run, entries: Sequence[Entry]) -> None:
    """Add entries to the run's record, and end it where that is the whole grid."""
    from dataclasses import asdict

    from llgbench import paths
    from llgbench.measure import provenance, recording
    from llgbench.records.record import Writer

    header = {**provenance.collect(paths.root()), "rounds": asdict(recording.QUICK)}
    with Writer(_folder(run), run.mark, header) as writer:
        for entry in entries:
            writer.add(entry)
        there = {entry.configuration for entry in (*writer.entries, *entries)}
        if there == set(grid("quick", DEFAULT_VARIANTS, (), ())):
            writer.end()


def _stored(run: Run) -> tuple[Entry, ...]:
    """Return what this run has stored so far."""
    from llgbench.records import record

    (path,) = _folder(run).glob(f"*-{run.mark}.jsonl")
    return record.read(path).entries


# ---- a record's entries as values --------------------------------------------------------------


def of_entry(entry: Entry) -> dict[str, Value] | str:
    """Return the metrics of an entry, or why it has none."""
    if entry.unavailable is not None:
        return entry.unavailable
    verdict = entry.verdict
    if verdict["label"] == "not judged":
        return f"not judged: {verdict['reason']}"
    return {
        **_times([entry]),
        "forbidden": float(verdict["forbidden"]),
        "accepted": float(verdict["accepted"]),
        "wrong": float(verdict["label"] == "wrong"),
        "wrong_tokens": float(entry.facts["wrong_tokens"]),
    }


def pool(entries: Sequence[Entry]) -> dict[str, Value] | str:
    """Return the metrics of entries pooled: of what is right, since a wrong mask's time is none."""
    from llgbench.records.times import masks_right

    right = [entry for entry in entries if masks_right(entry)]
    if not right:
        reasons = (e.unavailable or f"{e.verdict['label']}: {e.verdict['reason']}" for e in entries)
        return "; ".join(dict.fromkeys(reasons)) or "it was not measured"
    return {**_times(right), "right_cases": float(len(right))}


def _of(entries: Sequence[Entry], vocab: str, variant: str) -> list[Entry]:
    """Return the JSON cases of a vocab and variant."""
    from llgbench.records import times

    return [
        entry
        for entry in entries
        if times.pool_of(entry.facts.get("tags", ())) == times.POOLS["json"]
        and (entry.configuration.vocab, entry.configuration.variant) == (vocab, variant)
    ]


def _times(entries: Sequence[Entry]) -> dict[str, Value]:
    """Return the times of entries, in nanoseconds; percentiles are one sample per round."""
    from llgbench.records import stats, times

    found: dict[str, Value] = {}
    for kind, measure in times.STEPS:
        name = measure if kind == "cold" else f"{kind}_{measure}"
        rounds = times.pooled_rounds(entries, kind, measure)
        for label, q in PERCENTILES.items():
            found[f"{name}_{label}"] = samples(stats.block_percentiles(rounds, q))
    for measure in times.STARTS:
        every = stats.pool(a for e in entries for a in times.replays(e, "cold", measure))
        found[measure] = samples(every.astype(float).tolist())
    return found
