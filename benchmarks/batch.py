"""Batches: how late the slowest mask of a step is, by sequences and threads.

``setup_cache`` runs everything once; each benchmark then looks its value up.
"""

from llgbench import batch_suite, suite


def setup_cache():
    """Run the batches."""
    return batch_suite.measure()


setup_cache.timeout = 1800


class Batch:
    """json-tool-call on llama-bpe, by the pool; drafts have four tokens; times in nanoseconds."""

    version = "1"
    params = (batch_suite.parameters(),)
    param_names = ("sequences | threads",)
    timeout = 60

    def setup(self, found, parameter):
        suite.require(found, parameter)


suite.give(Batch, ["step_p50", "step_p99", "consume", "clone", "validate", "drafted", "rollback"])
