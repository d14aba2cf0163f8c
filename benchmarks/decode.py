"""The decode loop on a synthetic model: what a step takes, and how much of it is the grammar's.

The first benchmark of a vocab decodes all its variants, interleaved; the others look values up.
"""

from llgbench import decode_suite


def setup_cache():
    """Begin a run; nothing is measured here."""
    return decode_suite.begin()


class _Step:
    """Means over a step, nano on one thread."""

    version = "2"
    unit = "seconds"
    timeout = 900

    def track_step(self, *_):
        """Return the whole step."""
        return self.metrics.seconds("step")

    def track_grammar(self, *_):
        """Return the grammar's part of the step."""
        return self.metrics.seconds("grammar")

    def track_mask(self, *_):
        """Return the mask."""
        return self.metrics.seconds("mask")

    def track_apply(self, *_):
        """Return the pass of the mask over the candidates."""
        return self.metrics.seconds("apply")

    def track_accept(self, *_):
        """Return the consumption of the sampled token."""
        return self.metrics.seconds("accept")

    def track_share(self, *_):
        """Return the grammar's share of the step."""
        return self.metrics.get("share")

    track_share.unit = "%"

    def track_overhead(self, *_):
        """Return the loop's own share of the step."""
        return self.metrics.get("overhead")

    track_overhead.unit = "%"

    def track_tokens_per_second(self, *_):
        """Return the rate."""
        return self.metrics.get("tokens_per_second")

    track_tokens_per_second.unit = "tokens/s"


class Decode(_Step):
    """Each variant, the mask computed before the token is sampled."""

    params = (decode_suite.VOCABS, decode_suite.VARIANTS)
    param_names = ("vocab", "variant")

    def setup(self, run, vocab, variant):
        self.metrics = decode_suite.variants(run, vocab, variant)


class Modes(_Step):
    """The modes of the loop, greedy_tokenize on llama-bpe."""

    params = (decode_suite.MODES,)
    param_names = ("mode",)

    def setup(self, run, mode):
        self.metrics = decode_suite.modes(run, mode)
