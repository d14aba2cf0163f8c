"""The name by which ``benchmarks/`` finds :mod:`llgbench.asv.suite` and its fellows.

ASV runs the benchmarks of today against the packages of earlier commits, so the name stays where
modules move.
"""

from llgbench.asv import fallback_suite as fallback
from llgbench.asv.cells import begin
from llgbench.asv.operations import Operations, TokenizerBuilder
from llgbench.asv.suite import (
    JSON_CASES,
    LENGTHS,
    LEXER_CASES,
    LEXER_VOCABS,
    VARIANTS,
    VOCABS,
    cell,
    harness,
    pooled,
)

__all__ = [
    "JSON_CASES",
    "LENGTHS",
    "LEXER_CASES",
    "LEXER_VOCABS",
    "VARIANTS",
    "VOCABS",
    "Operations",
    "TokenizerBuilder",
    "begin",
    "cell",
    "fallback",
    "harness",
    "pooled",
]
