"""The name by which ``benchmarks/`` finds :mod:`llgbench.asv.batch_suite`; as with suite."""

from llgbench.asv.batch_suite import SEQUENCES, THREADS, batch
from llgbench.asv.cells import begin

__all__ = ["SEQUENCES", "THREADS", "batch", "begin"]
