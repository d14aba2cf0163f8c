"""The name by which ``benchmarks/`` finds :mod:`llgbench.asv.suite`.

ASV runs the benchmarks of today against the packages of earlier commits, where the module has this
name; so the name stays.
"""

from llgbench.asv.suite import (
    COUNTED_CASES,
    COUNTED_CURVE,
    COUNTED_RATIOS,
    CURVE,
    HARNESS,
    OVERHEAD_CASES,
    PENDING,
    PERCENTILES,
    TokenizerBuilder,
    checkpoint_configurations,
    configurations,
    counted,
    fallback,
    give,
    look_up,
    measure,
    operation,
    pooled_configurations,
    require,
    require_available,
    wrong_tokens,
)

__all__ = [
    "COUNTED_CASES",
    "COUNTED_CURVE",
    "COUNTED_RATIOS",
    "CURVE",
    "HARNESS",
    "OVERHEAD_CASES",
    "PENDING",
    "PERCENTILES",
    "TokenizerBuilder",
    "checkpoint_configurations",
    "configurations",
    "counted",
    "fallback",
    "give",
    "look_up",
    "measure",
    "operation",
    "pooled_configurations",
    "require",
    "require_available",
    "wrong_tokens",
]
