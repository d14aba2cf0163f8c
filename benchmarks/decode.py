"""The decode loop on a synthetic model: what a step takes, and how much of it is the grammar's.

``setup_cache`` decodes everything once, interleaved; each benchmark then looks its value up.
"""

from llgbench import decode_suite, suite


def setup_cache():
    """Decode everything."""
    return decode_suite.measure()


setup_cache.timeout = 1800


class Decode:
    """Means over a step, nano on one thread; times in nanoseconds, shares in percent."""

    version = "1"
    params = (decode_suite.parameters(),)
    param_names = ("vocab | variant | mode",)
    timeout = 60

    def setup(self, found, parameter):
        suite.require(found, parameter)


suite.give(
    Decode,
    ["step", "grammar", "mask", "apply", "accept", "share", "overhead", "tokens_per_second"],
)
