"""The name by which ``benchmarks/`` finds :mod:`llgbench.asv.batch_suite`; as with suite."""

from llgbench.asv.batch_suite import measure, parameters

__all__ = ["measure", "parameters"]
