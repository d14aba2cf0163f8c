"""The greedy lexeme fallback: what it costs off, on, pending, and by the length of a checkpoint."""

from llgbench import suite


def setup_cache():
    """Measure the overheads and the curve."""
    return suite.fallback()


setup_cache.timeout = 900


class _Looked:
    """Looks values up; each method's name after ``track_`` is the metric's."""

    version = "1"

    def setup(self, found, name):
        suite.require(found, name)


class Overhead(_Looked):
    """Ratios where no boundary is pending: off over stock, on over off."""

    params = (list(suite.OVERHEAD_CASES),)
    param_names = ("case",)


class Curve(_Looked):
    """The dearest step of ``a b{n} d``, in nanoseconds."""

    params = (list(suite.CURVE),)
    param_names = ("n | strategy",)


class Pending(_Looked):
    """A mask with a boundary pending over the dearer of its two readings alone."""

    params = (list(suite.PENDING),)
    param_names = ("state",)


class _Counted(_Looked):
    """Instructions by callgrind; skipped with its reason where there is no valgrind."""

    def setup(self, found, name):
        suite.require(found, suite.counted(name))


class OverheadInstructions(_Counted):
    """Warm ratios where no boundary is pending, in instructions."""

    params = (list(suite.COUNTED_CASES),)
    param_names = ("case",)


class PendingInstructions(_Counted):
    """As Pending, in instructions."""

    params = (list(suite.PENDING),)
    param_names = ("state",)


class CurveInstructions(_Counted):
    """The steps of ``a b{n} d``, warm, in instructions."""

    params = (list(suite.COUNTED_CURVE),)
    param_names = ("n | strategy",)


suite.give(Overhead, ["off_mask", "off_consume", "on_mask", "on_consume"])
suite.give(Curve, ["dearest", "median"])
suite.give(Pending, ["time"])
suite.give(OverheadInstructions, suite.COUNTED_RATIOS, suite.counted)
suite.give(PendingInstructions, ["instructions"], suite.counted)
suite.give(CurveInstructions, ["dearest", "median"], suite.counted)
