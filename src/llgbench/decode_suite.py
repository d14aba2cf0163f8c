"""The name by which ``benchmarks/`` finds :mod:`llgbench.asv.decode_suite`; as with suite."""

from llgbench.asv.cells import begin
from llgbench.asv.decode_suite import (
    ALLOWED,
    MODES,
    TOKENS,
    VARIANTS,
    VOCABS,
    apply,
    modes,
    variants,
)

__all__ = [
    "ALLOWED",
    "MODES",
    "TOKENS",
    "VARIANTS",
    "VOCABS",
    "apply",
    "begin",
    "modes",
    "variants",
]
