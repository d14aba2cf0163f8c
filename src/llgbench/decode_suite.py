"""The name by which ``benchmarks/`` finds :mod:`llgbench.asv.decode_suite`; as with suite."""

from llgbench.asv.decode_suite import apply, apply_parameters, measure, parameters

__all__ = ["apply", "apply_parameters", "measure", "parameters"]
