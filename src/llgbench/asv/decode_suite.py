"""The decode loop as ASV's benchmarks see it: variants on a vocab, and modes of one variant.

Cheap to import: ASV's discovery reads the axes in every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from llgbench.asv.cells import Metrics, Run, Value, Values, kept, row
from llgbench.inputs.configuration import QUICK_VOCABS
from llgbench.inputs.variant import DEFAULT_VARIANTS

if TYPE_CHECKING:
    from llgbench.decode.recording import Request
    from llgbench.records.entry import Entry

CASE = "json-tool-call"

# The axes of the benchmarks.
VOCABS = list(QUICK_VOCABS)
VARIANTS = list(DEFAULT_VARIANTS)
MODES = ["mask-first", "sample-first", "validate-first", "forced", "overlap"]
TOKENS = ["32000", "128256", "262144"]
ALLOWED = ["few", "half", "all"]

# The variant that has both right masks and, on this vocab, forced tokens.
_MODES_VOCAB, _MODES_VARIANT = "llama-bpe", "greedy_tokenize"
_UNCONSTRAINED = "unconstrained"


def variants(run: Run, vocab: str, variant: str, rounds: int = 3) -> Metrics:
    """Return the means over a step in mode mask-first; all variants of a vocab take turns.

    Raises:
        NotImplementedError: it cannot be decoded here, or its grammar was dropped.
    """
    values = kept(run, f"decode on {vocab}", lambda: _measured(request(vocab, rounds), run))
    return row(values, name(vocab, variant, "mask-first"))


def modes(run: Run, mode: str, rounds: int = 3) -> Metrics:
    """Return the means over a step in a mode, of greedy_tokenize on llama-bpe.

    Raises:
        NotImplementedError: as :func:`variants`.
    """
    values = kept(run, "decode modes", lambda: _measured(modes_request(rounds), run))
    return row(values, name(_MODES_VOCAB, _MODES_VARIANT, mode))


def name(vocab: str, variant: str, mode: str) -> str:
    """Return the name of a row."""
    return f"{vocab} | {variant} | {mode}"


def request(vocab: str, rounds: int = 3) -> Request:
    """Return what is decoded on a vocab: nano, on one thread, steadier where cores are shared."""
    from llgbench.decode.plan import Plan
    from llgbench.decode.recording import Request

    return Request((CASE,), (vocab,), plan=Plan(rounds=rounds), threads=1)


def modes_request(rounds: int = 3) -> Request:
    """Return what is decoded to compare the modes."""
    from llgbench.decode.plan import Plan
    from llgbench.decode.recording import Request

    return Request(
        (CASE,), (_MODES_VOCAB,), (_MODES_VARIANT,), modes=tuple(MODES), plan=Plan(rounds=rounds),
        threads=1,
    )  # fmt: skip


def _measured(wanted: Request, run: Run) -> Values:
    from llgbench.decode import recording

    results = Path(run.results) if run.results else None
    return values(recording.record(wanted, results).entries)


def values(entries: Iterable[Entry]) -> Values:
    """Return the rows of a decode record; what ran without a grammar has none."""
    found: Values = {}
    for entry in entries:
        c = entry.configuration
        if c.variant == _UNCONSTRAINED:
            continue
        metrics = _metrics(entry)
        # Of what is not available no mode is known.
        known = [entry.facts["mode"]] if "mode" in entry.facts else MODES
        found |= {name(c.vocab, c.variant, mode): metrics for mode in known}
    return found


def _metrics(entry: Entry) -> dict[str, Value] | str:
    from llgbench.decode.summary import summarize, verdict

    summary = summarize(entry)
    if entry.unavailable is not None or summary is None:
        return entry.unavailable or verdict(entry)
    if entry.facts["lost_at"] is not None:
        return verdict(entry)  # what continues without its grammar is not a time of it
    return {
        "step": summary.wall,
        "grammar": summary.share * summary.wall,
        "share": 100 * summary.share,
        "mask": summary.hidden_mask or summary.parts["mask"],
        "apply": summary.parts["apply"],
        "accept": summary.parts["accept"],
        "overhead": 100 * summary.overhead,
        "tokens_per_second": summary.per_second,
    }


def apply(tokens: str, allowed: str, rounds: int = 200) -> Metrics:
    """Time llgbench's apply and llama.cpp's loop over one array, turn by turn.

    Args:
        tokens: of the vocabulary.
        allowed: the share of them that the mask allows, one of ALLOWED.
        rounds: how often.

    Returns:
        ``ours``, a median in nanoseconds, and ``of_llama_cpp``, in percent of that loop's.
    """
    import numpy as np

    from llgbench.llama.sampler import compare_apply

    share = {"few": 0.001, "half": 0.5, "all": 1.0}[allowed]
    words = -(-int(tokens) // 32)
    bits = np.random.default_rng(0).random(words * 32) < share
    mask = np.packbits(bits, bitorder="little").view(np.uint32)
    times = compare_apply(mask, int(tokens), rounds)
    ours, plain = times.ours_ns, times.plain_ns
    return Metrics(
        f"{tokens} tokens, {allowed} allowed", {"ours": ours, "of_llama_cpp": 100 * ours / plain}
    )
