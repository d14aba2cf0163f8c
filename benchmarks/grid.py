"""The quick grid: masks, tokens, compilation and verdicts, measured once for all values here.

``setup_cache`` runs the whole grid in one process, interleaved, into results/records; each
benchmark then looks its value up. ``version`` is set by hand: raise it when what a number means
changes, and say so in CHANGELOG.md.
"""

from llgbench import suite

VERSION = "1"


def setup_cache():
    """Measure the grid."""
    return suite.measure()


setup_cache.timeout = 1800


class _Looked:
    """Looks values up; each method's name after ``track_`` is the metric's."""

    version = VERSION
    param_names = ("configuration",)
    timeout = 60

    def setup(self, found, configuration):
        suite.require(found, configuration)


class PooledTails(_Looked):
    """The JSON cases pooled, a vocab and variant each: the field's figures, in nanoseconds."""

    params = (suite.pooled_configurations(),)


class Cases(_Looked):
    """Each case by itself, in nanoseconds."""

    params = (suite.configurations(),)


class Checkpoints(_Looked):
    """``a|ab{n}c`` followed by ``b{n}d``: what a terminal that stays open for n bytes costs."""

    params = (suite.checkpoint_configurations(),)


class Verdicts(_Looked):
    """Whether masks and acceptance are right: forbidden tokens allowed, texts accepted."""

    params = (suite.configurations(),)


class Harness:
    """What the suite itself adds: the whole run over the time inside llguidance, an empty step."""

    version = VERSION

    def track_overhead(self, found):
        """Whole run over time inside llguidance: at most 1.2."""
        return suite.look_up(found, suite.HARNESS, "overhead")

    track_overhead.unit = "ratio"

    def track_empty_step(self, found):
        """A step of the loop with nothing to do: at most 100 ns."""
        return suite.look_up(found, suite.HARNESS, "empty_step")

    track_empty_step.unit = "ns"


suite.give(
    PooledTails,
    [
        f"{name}_{label}"
        for name in ("tbm", "cold_mask", "cold_consume")
        for label in suite.PERCENTILES
    ]
    + [
        "warm_mask_p50",
        "warm_mask_p99",
        "sibling_mask_p50",
        "cached_mask_p50",
        "compile",
        "first_mask",
        "ttfm",
    ],
)
suite.give(Cases, ["cold_mask_p50", "cold_mask_max", "cold_consume_p50", "ttfm"])
suite.give(Checkpoints, ["cold_mask_p90", "cold_mask_p99", "warm_mask_max"])
suite.give(Verdicts, ["forbidden", "accepted"])
