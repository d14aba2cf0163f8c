"""Batches: how late the slowest mask of a step is, by sequences and threads."""

from llgbench import batch_suite


def setup_cache():
    """Begin a run; nothing is measured here."""
    return batch_suite.begin()


class Batch:
    """json-tool-call on llama-bpe, greedy_tokenize, by the pool; drafts have four tokens."""

    version = "2"
    unit = "seconds"
    params = (batch_suite.SEQUENCES, batch_suite.THREADS)
    param_names = ("sequences", "threads")
    timeout = 900

    def setup(self, run, sequences, threads):
        self.metrics = batch_suite.batch(run, sequences, threads)

    def track_step_p50(self, *_):
        """Return the median of the steps: until the slowest mask of a step is there."""
        return self.metrics.seconds("step_p50")

    def track_step_p99(self, *_):
        """Return the 99th percentile of the steps."""
        return self.metrics.seconds("step_p99")

    def track_consume(self, *_):
        """Return the consumption of a token."""
        return self.metrics.seconds("consume")

    def track_clone(self, *_):
        """Return the cloning of a matcher, where a text begins."""
        return self.metrics.seconds("clone")

    def track_validate(self, *_):
        """Return the validation of a draft of four tokens."""
        return self.metrics.seconds("validate")

    def track_drafted(self, *_):
        """Return the masks of a draft."""
        return self.metrics.seconds("drafted")

    def track_rollback(self, *_):
        """Return the rollback of what is refused of a draft."""
        return self.metrics.seconds("rollback")
