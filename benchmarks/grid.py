"""The quick grid: masks, tokens, compilation and verdicts.

A cell, a case on a vocab, is measured by the first benchmark that needs it, under all variants,
interleaved; so one benchmark costs its own cells alone. All that a run has measured is one record
in results/records. ``version`` is set by hand: raise it when what a number means changes, and say
so in CHANGELOG.md. Times are cold unless a name says warm, sibling or cached.
"""

from llgbench import suite


def setup_cache():
    """Begin a run; nothing is measured here."""
    return suite.begin()


class _Cell:
    """A case on a vocab under a variant."""

    version = "2"
    unit = "seconds"
    timeout = 900

    def setup(self, run, case, vocab, variant):
        self.metrics = suite.cell(run, case, vocab, variant)

    def track_mask_p50(self, run, case, vocab, variant):
        """Return the median mask."""
        return self.metrics.seconds("mask_p50")

    def track_mask_max(self, run, case, vocab, variant):
        """Return the slowest mask of a round."""
        return self.metrics.seconds("mask_max")

    def track_consume_p50(self, run, case, vocab, variant):
        """Return the median consume_token."""
        return self.metrics.seconds("consume_p50")

    def track_ttfm(self, run, case, vocab, variant):
        """Return the time to first mask."""
        return self.metrics.seconds("ttfm")

    def track_forbidden(self, run, case, vocab, variant):
        """Return how many forbidden tokens the masks allow."""
        return self.metrics.get("forbidden")

    track_forbidden.unit = "count"

    def track_accepted(self, run, case, vocab, variant):
        """Return how many texts are accepted."""
        return self.metrics.get("accepted")

    track_accepted.unit = "count"


class Cases(_Cell):
    """Each JSON case by itself."""

    params = (suite.JSON_CASES, suite.VOCABS, suite.VARIANTS)
    param_names = ("case", "vocab", "variant")


class Lexer(_Cell):
    """Each case of the lexer by itself."""

    params = (suite.LEXER_CASES, suite.LEXER_VOCABS, suite.VARIANTS)
    param_names = ("case", "vocab", "variant")


class Checkpoints(_Cell):
    """``a|ab{n}c`` followed by ``b{n}d``: what a terminal that stays open for n bytes costs."""

    params = (suite.LENGTHS, suite.LEXER_VOCABS, suite.VARIANTS)
    param_names = ("n", "vocab", "variant")

    def setup(self, run, n, vocab, variant):
        super().setup(run, f"checkpoint@{n}", vocab, variant)

    def track_mask_p90(self, run, n, vocab, variant):
        """Return the 90th percentile of the masks."""
        return self.metrics.seconds("mask_p90")

    def track_mask_p99(self, run, n, vocab, variant):
        """Return the 99th percentile of the masks."""
        return self.metrics.seconds("mask_p99")

    def track_warm_mask_max(self, run, n, vocab, variant):
        """Return the slowest warm mask of a round."""
        return self.metrics.seconds("warm_mask_max")


class PooledTails:
    """The JSON cases pooled, per vocab and variant: the field's figures."""

    version = "2"
    unit = "seconds"
    params = (suite.VOCABS, suite.VARIANTS)
    param_names = ("vocab", "variant")
    timeout = 1800

    def setup(self, run, vocab, variant):
        self.metrics = suite.pooled(run, vocab, variant)

    def track_tbm_p50(self, run, vocab, variant):
        """Return the median TBM."""
        return self.metrics.seconds("tbm_p50")

    def track_tbm_p90(self, run, vocab, variant):
        """Return the 90th percentile of TBM."""
        return self.metrics.seconds("tbm_p90")

    def track_tbm_p99(self, run, vocab, variant):
        """Return the 99th percentile of TBM."""
        return self.metrics.seconds("tbm_p99")

    def track_tbm_p99_9(self, run, vocab, variant):
        """Return the 99.9th percentile of TBM."""
        return self.metrics.seconds("tbm_p99_9")

    def track_tbm_max(self, run, vocab, variant):
        """Return the largest TBM of a round."""
        return self.metrics.seconds("tbm_max")

    def track_mask_p50(self, run, vocab, variant):
        """Return the median mask."""
        return self.metrics.seconds("mask_p50")

    def track_mask_p90(self, run, vocab, variant):
        """Return the 90th percentile of the masks."""
        return self.metrics.seconds("mask_p90")

    def track_mask_p99(self, run, vocab, variant):
        """Return the 99th percentile of the masks."""
        return self.metrics.seconds("mask_p99")

    def track_mask_p99_9(self, run, vocab, variant):
        """Return the 99.9th percentile of the masks."""
        return self.metrics.seconds("mask_p99_9")

    def track_mask_max(self, run, vocab, variant):
        """Return the slowest mask of a round."""
        return self.metrics.seconds("mask_max")

    def track_consume_p50(self, run, vocab, variant):
        """Return the median consume_token."""
        return self.metrics.seconds("consume_p50")

    def track_consume_p90(self, run, vocab, variant):
        """Return the 90th percentile of consume_token."""
        return self.metrics.seconds("consume_p90")

    def track_consume_p99(self, run, vocab, variant):
        """Return the 99th percentile of consume_token."""
        return self.metrics.seconds("consume_p99")

    def track_consume_p99_9(self, run, vocab, variant):
        """Return the 99.9th percentile of consume_token."""
        return self.metrics.seconds("consume_p99_9")

    def track_consume_max(self, run, vocab, variant):
        """Return the slowest consume_token of a round."""
        return self.metrics.seconds("consume_max")

    def track_warm_mask_p50(self, run, vocab, variant):
        """Return the median warm mask."""
        return self.metrics.seconds("warm_mask_p50")

    def track_warm_mask_p99(self, run, vocab, variant):
        """Return the 99th percentile of the warm masks."""
        return self.metrics.seconds("warm_mask_p99")

    def track_sibling_mask_p50(self, run, vocab, variant):
        """Return the median mask of a clone that another text was replayed on before."""
        return self.metrics.seconds("sibling_mask_p50")

    def track_cached_mask_p50(self, run, vocab, variant):
        """Return the median mask asked for again at the same state."""
        return self.metrics.seconds("cached_mask_p50")

    def track_compile(self, run, vocab, variant):
        """Return the compilation of a grammar."""
        return self.metrics.seconds("compile")

    def track_first_mask(self, run, vocab, variant):
        """Return the first mask of a fresh matcher."""
        return self.metrics.seconds("first_mask")

    def track_ttfm(self, run, vocab, variant):
        """Return the time to first mask."""
        return self.metrics.seconds("ttfm")


class Harness:
    """What the suite itself adds: a whole run over the time inside llguidance, an empty step."""

    version = "2"
    timeout = 900

    def setup(self, run):
        self.metrics = suite.harness(run)

    def track_overhead(self, run):
        """Return a whole run over the time inside llguidance."""
        return self.metrics.get("overhead")

    track_overhead.unit = "ratio"

    def track_empty_step(self, run):
        """Return a step of the loop with nothing to do: at most 100 ns."""
        return self.metrics.seconds("empty_step")

    track_empty_step.unit = "seconds"
