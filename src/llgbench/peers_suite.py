"""The name by which ``benchmarks/`` finds :mod:`llgbench.asv.peers_suite`; as with suite."""

from llgbench.asv.cells import begin
from llgbench.asv.peers_suite import CASES, ENGINES, peer

__all__ = ["CASES", "ENGINES", "begin", "peer"]
