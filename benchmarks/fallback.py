"""The greedy lexeme fallback: what it costs off, on, pending, and by the length of a checkpoint.

Instructions are callgrind's; where there is no valgrind they are n/a, and stderr says why.
"""

from llgbench import suite
from llgbench.suite import fallback


def setup_cache():
    """Begin a run; nothing is measured here."""
    return suite.begin()


class Overhead:
    """Ratios where no boundary is pending: off over stock, on over off."""

    version = "1"
    unit = "ratio"
    params = (fallback.CASES,)
    param_names = ("case",)
    timeout = 900

    def setup(self, run, case):
        self.metrics = fallback.ratios(run, case)

    def track_off_mask(self, run, case):
        """Return the masks with the option off over the stock engine's."""
        return self.metrics.get("off_mask")

    def track_off_consume(self, run, case):
        """Return consume_token with the option off over the stock engine's."""
        return self.metrics.get("off_consume")

    def track_on_mask(self, run, case):
        """Return the masks with the option on over those with it off."""
        return self.metrics.get("on_mask")

    def track_on_consume(self, run, case):
        """Return consume_token with the option on over that with it off."""
        return self.metrics.get("on_consume")


class Curve:
    """The steps of ``a b{n} d``."""

    version = "2"
    unit = "seconds"
    params = (fallback.LENGTHS, fallback.STRATEGIES)
    param_names = ("n", "strategy")
    timeout = 900

    def setup(self, run, n, strategy):
        self.metrics = fallback.checkpoint(run, n, strategy)

    def track_dearest(self, run, n, strategy):
        """Return the costliest step."""
        return self.metrics.seconds("dearest")

    def track_median(self, run, n, strategy):
        """Return the median step."""
        return self.metrics.seconds("median")


class Pending:
    """A mask with a boundary pending over the costlier of its two readings alone."""

    version = "1"
    unit = "ratio"
    params = (fallback.PENDING,)
    param_names = ("state",)
    timeout = 900

    def setup(self, run, state):
        self.metrics = fallback.pending(run, state)

    def track_time(self, run, state):
        """Return the ratio of the times."""
        return self.metrics.get("time")


class OverheadInstructions:
    """Warm ratios where no boundary is pending, in instructions."""

    version = "1"
    unit = "ratio"
    params = (fallback.COUNTED_CASES,)
    param_names = ("case",)
    timeout = 900

    def setup(self, run, case):
        self.metrics = fallback.counted_ratios(run, case)

    def track_off_mask(self, run, case):
        """Return the masks with the option off over the stock engine's."""
        return self.metrics.get("off_mask")

    def track_off_consume(self, run, case):
        """Return consume_token with the option off over the stock engine's."""
        return self.metrics.get("off_consume")

    def track_off_step(self, run, case):
        """Return both with the option off over the stock engine's."""
        return self.metrics.get("off_step")

    def track_on_mask(self, run, case):
        """Return the masks with the option on over those with it off."""
        return self.metrics.get("on_mask")

    def track_on_consume(self, run, case):
        """Return consume_token with the option on over that with it off."""
        return self.metrics.get("on_consume")

    def track_on_step(self, run, case):
        """Return both with the option on over those with it off."""
        return self.metrics.get("on_step")


class PendingInstructions:
    """As Pending, in instructions."""

    version = "1"
    unit = "ratio"
    params = (fallback.PENDING,)
    param_names = ("state",)
    timeout = 900

    def setup(self, run, state):
        self.metrics = fallback.counted_pending(run, state)

    def track_instructions(self, run, state):
        """Return the ratio of the instructions."""
        return self.metrics.get("instructions")


class CurveInstructions:
    """The steps of ``a b{n} d``, warm, in instructions."""

    version = "1"
    unit = "instructions"
    params = (fallback.COUNTED_LENGTHS, fallback.STRATEGIES)
    param_names = ("n", "strategy")
    timeout = 900

    def setup(self, run, n, strategy):
        self.metrics = fallback.counted_checkpoint(run, n, strategy)

    def track_dearest(self, run, n, strategy):
        """Return the costliest step."""
        return self.metrics.get("dearest")

    def track_median(self, run, n, strategy):
        """Return the median step."""
        return self.metrics.get("median")
