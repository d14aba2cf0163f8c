"""Work counters: what a mask did, where an engine exports it (``llgx_matcher_step_stats``).

They do not depend on the machine at all: trie nodes walked, lexer states built, rows of the parser.
"""

from __future__ import annotations

from llgbench._native import ffi
from llgbench.engine import Engine, Matcher, TokenArray

# In the order of LlgxStepStats, engine/src/lib.rs, after its size.
NAMES = ("trie_nodes_walked", "lexer_cost", "all_items", "rows", "cached_rows", "slices_applied")

# llguidance's own clock, which follows, is none.
_FIELDS = len(NAMES) + 1


def exported(engine: Engine) -> bool:
    """Whether the engine counts its work."""
    return engine.symbol("llgx_matcher_step_stats") is not None


def collect(matcher: Matcher, trace: TokenArray) -> dict[str, int] | None:
    """Drive a matcher along a trace; return the sums over its masks, None where not exported."""
    address = matcher.tokenizer.engine.symbol("llgx_matcher_step_stats")
    if address is None:
        return None
    read = ffi.cast("int32_t (*)(LlgMatcher *, uint64_t *)", address)
    stats = ffi.new("uint64_t[]", 1 + _FIELDS)
    sums = dict.fromkeys(NAMES, 0)
    for token in trace.tolist():
        if matcher.is_stopped() or matcher.mask() is None:
            break
        stats[0] = ffi.sizeof(stats)
        if read(matcher.pointer, stats) == 0:
            for at, name in enumerate(NAMES, start=1):
                sums[name] += int(stats[at])
        if not matcher.consume_all([token]):
            break
    return sums
