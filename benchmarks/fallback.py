"""The greedy lexeme fallback: what it costs off, on, and by the length of a checkpoint."""

from llgbench import suite


def setup_cache():
    """Measure the overheads and the curve."""
    return suite.fallback()


setup_cache.timeout = 900


class Overhead:
    """Ratios where no boundary is pending: off over stock, on over off."""

    version = "1"
    unit = "ratio"
    params = (list(suite.OVERHEAD_CASES),)
    param_names = ("case",)

    def setup(self, found, case):
        suite.require(found, case)


class Curve:
    """The dearest step of ``a b{n} d``, in nanoseconds."""

    version = "1"
    unit = "ns"
    params = (list(suite.CURVE),)
    param_names = ("n | strategy",)

    def setup(self, found, point):
        suite.require(found, point)

    def track_dearest(self, found, point):
        """Return the dearest step."""
        return suite.look_up(found, point, "dearest")

    def track_median(self, found, point):
        """Return the median step."""
        return suite.look_up(found, point, "median")


suite.give(Overhead, ["off_mask", "off_consume", "on_mask", "on_consume"])
