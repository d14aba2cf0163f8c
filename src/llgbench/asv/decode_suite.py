"""What the ASV decode benchmarks call; see suite.py for why it is all measured at once.

Cheap to import: ASV's discovery reads the parameters in every process.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from llgbench.asv.suite import Values
from llgbench.inputs.configuration import QUICK_VOCABS
from llgbench.inputs.variant import DEFAULT_VARIANTS

if TYPE_CHECKING:
    from llgbench.decode.recording import Request
    from llgbench.records.record import Entry

CASE = "json-tool-call"
# A mode each for the variant that has both right masks and, on llama-bpe, forced tokens.
_OTHER_MODES = ("sample-first", "validate-first", "forced", "overlap")
_MODES_VOCAB = "llama-bpe"
_UNCONSTRAINED = "unconstrained"


def parameters() -> list[str]:
    """Return ASV's parameters: ``vocab | variant | mode``."""
    found = [f"{v} | {w} | mask-first" for v in QUICK_VOCABS for w in DEFAULT_VARIANTS]
    return found + [f"{_MODES_VOCAB} | greedy_tokenize | {mode}" for mode in _OTHER_MODES]


def requests(vocabs: tuple[str, ...] = QUICK_VOCABS, rounds: int = 3) -> list[Request]:
    """Return what is measured: nano, on one thread, which is steadier where cores are shared."""
    from llgbench.decode.plan import Plan
    from llgbench.decode.recording import Request

    plan = Plan(rounds=rounds)
    found = [Request((CASE,), vocabs, plan=plan, threads=1)]
    if _MODES_VOCAB in vocabs:
        found.append(
            Request(
                (CASE,), (_MODES_VOCAB,), ("greedy_tokenize",), modes=_OTHER_MODES, plan=plan,
                threads=1,
            )
        )  # fmt: skip
    return found


def measure(
    results: Path | None = None, vocabs: tuple[str, ...] = QUICK_VOCABS, rounds: int = 3
) -> Values:
    """Decode everything into records and return every tracked value.

    Raises:
        UnavailableError: nothing can be decoded here at all.
    """
    from llgbench.decode import recording

    found: Values = {}
    for request in requests(vocabs, rounds):
        for entry in recording.record(request, results).entries:
            found |= _values(entry)
    return found


def _values(entry: Entry) -> Values:
    from llgbench.decode.summary import summarize, verdict

    c = entry.configuration
    if c.variant == _UNCONSTRAINED:
        return {}
    summary = summarize(entry)
    if entry.unavailable is not None or summary is None:
        name = f"{c.vocab} | {c.variant} | mask-first"
        return {name: entry.unavailable or verdict(entry)}
    name = f"{c.vocab} | {c.variant} | {entry.facts['mode']}"
    if entry.facts["lost_at"] is not None:
        return {name: verdict(entry)}  # what goes on without a grammar is no time of one
    grammar = summary.share * summary.wall
    return {
        name: {
            "step": summary.wall,
            "grammar": grammar,
            "share": 100 * summary.share,
            "mask": summary.hidden_mask or summary.parts["mask"],
            "apply": summary.parts["apply"],
            "accept": summary.parts["accept"],
            "overhead": 100 * summary.overhead,
            "tokens_per_second": summary.per_second,
        }
    }


def apply_parameters() -> list[str]:
    """Return ASV's parameters of the apply benchmark: tokens, and the share of them allowed."""
    return [
        f"{n} | {share}" for n in (32_000, 128_256, 262_144) for share in ("few", "half", "all")
    ]


def apply(parameter: str, rounds: int = 200) -> tuple[float, float]:
    """Time llgbench's apply and llama.cpp's loop over one array, turn by turn.

    Returns:
        The two medians, nanoseconds.
    """
    import numpy as np

    from llgbench.llama.sampler import compare_apply

    n, share = parameter.split(" | ")
    allowed = {"few": 0.001, "half": 0.5, "all": 1.0}[share]
    words = -(-int(n) // 32)
    bits = np.random.default_rng(0).random(words * 32) < allowed
    mask = np.packbits(bits, bitorder="little").view(np.uint32)
    times = compare_apply(mask, int(n), rounds)
    return times.ours_ns, times.plain_ns
