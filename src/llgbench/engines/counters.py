"""Work counters: what a mask did, where an engine exports it (``llgx_matcher_step_stats``).

They do not depend on the machine at all: trie nodes walked, lexer states built, rows of the parser;
and, of the fallback, bytes read again and bytes that levels took (``llgx_matcher_fallback_stats``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from llgbench._native import ffi
from llgbench.engines.engine import Engine, Matcher, TokenArray

# In the order of LlgxStepStats, engine/src/lib.rs, after its size.
NAMES = ("trie_nodes_walked", "lexer_cost", "all_items", "rows", "cached_rows", "slices_applied")

# In the order of LlgxFallbackStats, after its size; these are sums since the matcher was made.
FALLBACK_NAMES = ("recoveries", "reread_bytes", "promotions", "snapshots", "synced_bytes")

Counts = npt.NDArray[np.uint64]


def exported(engine: Engine) -> bool:
    """Whether the engine counts its work."""
    return engine.symbol("llgx_matcher_step_stats") is not None


def collect(matcher: Matcher, trace: TokenArray) -> dict[str, int] | None:
    """Drive a matcher along a trace; return the sums over its masks, None where not exported."""
    found = by_step(matcher, trace)
    return None if found is None else {name: int(found[name].sum()) for name in NAMES}


def by_step(matcher: Matcher, trace: TokenArray) -> dict[str, Counts] | None:
    """Drive a matcher along a trace; return each step's work, None where not exported.

    Returns:
        By each of NAMES an array of the masks' counts, shape (steps,), uint64; and by each of
        FALLBACK_NAMES the work of mask and token together, zero where the option is off.
    """
    step = _reader(matcher, "llgx_matcher_step_stats", NAMES)
    if step is None:
        return None
    fallback = _reader(matcher, "llgx_matcher_fallback_stats", FALLBACK_NAMES)
    rows: list[list[int]] = []
    before = fallback() if fallback is not None else None
    for token in trace.tolist():
        mask = None if matcher.is_stopped() else matcher.mask()
        if mask is None:
            break
        row = step() or [0] * len(NAMES)
        # Validation is work too, and no step of a replay has it where the mask has the token.
        allowed = bool(mask[token // 32] >> np.uint32(token % 32) & 1)
        consumed = matcher.consume(token) if allowed else matcher.consume_all([token])
        after = fallback() if fallback is not None else None
        if before is not None and after is not None:
            row += [b - a for a, b in zip(before, after, strict=True)]
        else:
            row += [0] * len(FALLBACK_NAMES)
        before = after
        rows.append(row)
        if not consumed:
            break
    names = (*NAMES, *FALLBACK_NAMES)
    table = np.array(rows, np.uint64).reshape(len(rows), len(names))
    return {name: table[:, at].copy() for at, name in enumerate(names)}


def fallback_work(matcher: Matcher) -> dict[str, int] | None:
    """Return the fallback's counters since the matcher was made; None without the option."""
    read = _reader(matcher, "llgx_matcher_fallback_stats", FALLBACK_NAMES)
    found = None if read is None else read()
    return None if found is None else dict(zip(FALLBACK_NAMES, found, strict=True))


def _reader(
    matcher: Matcher, symbol: str, names: Sequence[str]
) -> Callable[[], list[int] | None] | None:
    """Return what reads a struct of counters, None where the engine does not export it.

    The reader gives None where the engine has nothing to say of this matcher.
    """
    address = matcher.tokenizer.engine.symbol(symbol)
    if address is None:
        return None
    read = ffi.cast("int32_t (*)(LlgMatcher *, uint64_t *)", address)
    stats = ffi.new("uint64_t[]", 1 + len(names))
    stats[0] = ffi.sizeof(stats)  # no field beyond these is written

    def reader() -> list[int] | None:
        if read(matcher.pointer, stats) != 0:
            return None
        return [int(stats[at]) for at in range(1, 1 + len(names))]

    return reader
