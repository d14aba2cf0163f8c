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


def _give(metric, unit):
    def look_up(self, found, parameter):
        return suite.look_up(found, parameter, metric)

    look_up.__name__ = f"track_{metric}"
    look_up.__doc__ = f"Return {metric}."
    look_up.unit = unit
    setattr(Decode, look_up.__name__, look_up)


for _metric in ("step", "grammar", "mask", "apply", "accept"):
    _give(_metric, "ns")
for _metric in ("share", "overhead"):
    _give(_metric, "%")
_give("tokens_per_second", "tokens/s")
