"""The greedy lexeme fallback: what it costs off, on, pending, and by the length of a checkpoint."""

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


class Pending:
    """A mask with a boundary pending over the dearer of its two readings alone."""

    version = "1"
    unit = "ratio"
    params = (list(suite.PENDING),)
    param_names = ("state",)

    def setup(self, found, state):
        suite.require(found, state)

    def track_time(self, found, state):
        """Return the ratio of the best times."""
        return suite.look_up(found, state, "time")


class _Counted:
    """Instructions by callgrind; skipped with its reason where there is no valgrind."""

    version = "1"

    def setup(self, found, name):
        suite.require(found, suite.counted(name))


class OverheadInstructions(_Counted):
    """Warm ratios where no boundary is pending, in instructions."""

    unit = "ratio"
    params = (list(suite.COUNTED_CASES),)
    param_names = ("case",)


class PendingInstructions(_Counted):
    """As Pending, in instructions."""

    unit = "ratio"
    params = (list(suite.PENDING),)
    param_names = ("state",)


class CurveInstructions(_Counted):
    """The steps of ``a b{n} d``, warm, in instructions."""

    unit = "instructions"
    params = (list(suite.COUNTED_CURVE),)
    param_names = ("n | strategy",)


suite.give(Overhead, ["off_mask", "off_consume", "on_mask", "on_consume"])
suite.give(OverheadInstructions, suite.COUNTED_RATIOS, suite.counted)
suite.give(PendingInstructions, ["instructions"], suite.counted)
suite.give(CurveInstructions, ["dearest", "median"], suite.counted)
