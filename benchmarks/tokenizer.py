"""Building a tokenizer: time and peak memory, and how many tokens the bridge gets wrong."""

from llgbench import suite


class _Built:
    """A vocab and a variant that builds its tokenizer on it."""

    params = (suite.VOCABS, ["baseline", "greedy_tokenize"])
    param_names = ("vocab", "variant")
    timeout = 120

    def setup(self, vocab, variant):
        self.builder = suite.TokenizerBuilder(vocab, variant)

    def teardown(self, vocab, variant):
        self.builder.close()


class Tokenizer(_Built):
    """llg_new_tokenizer on a vocab, as a variant calls it."""

    version = "2"

    def track_build(self, vocab, variant):
        """Return the times of three builds."""
        return self.builder.builds().seconds("build")

    track_build.unit = "seconds"

    def track_table(self, vocab, variant):
        """Return the token table as a share of the tokenizer: at most 1.5."""
        return self.builder.builds().get("table")

    track_table.unit = "ratio"

    def peakmem_build(self, vocab, variant):
        """Build one tokenizer: the whole process with the vocab open."""
        self.builder.tokenizer_ns()


class TokenBytes(_Built):
    """Tokens whose bytes a variant gives llguidance wrong."""

    version = "1"
    unit = "tokens"

    def track_wrong_tokens(self, vocab, variant):
        """Count them."""
        return self.builder.wrong_tokens()
