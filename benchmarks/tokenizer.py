"""Building a tokenizer: time and peak memory, and how many tokens the bridge gets wrong."""

from llgbench import suite

CONFIGURATIONS = [
    "llama-spm | baseline",
    "llama-spm | greedy_tokenize",
    "llama-bpe | baseline",
    "llama-bpe | greedy_tokenize",
    "gemma-4 | greedy_tokenize",
]


class Tokenizer:
    """llg_new_tokenizer on a vocab, as a variant calls it."""

    version = "1"
    params = (CONFIGURATIONS,)
    param_names = ("vocab | variant",)
    timeout = 120

    def setup(self, configuration):
        vocab, variant = (part.strip() for part in configuration.split("|"))
        self.builder = suite.TokenizerBuilder(vocab, variant)

    def teardown(self, configuration):
        self.builder.close()

    def track_build(self, configuration):
        """Three builds, in nanoseconds."""
        return {"samples": [self.builder.tokenizer_ns() for _ in range(3)], "number": 1}

    track_build.unit = "ns"

    def track_table(self, configuration):
        """The token table as a share of the tokenizer: at most 1.5."""
        table = min(self.builder.table_ns() for _ in range(3))
        return table / min(self.builder.tokenizer_ns() for _ in range(3))

    track_table.unit = "ratio"

    def peakmem_build(self, configuration):
        """The whole process with the vocab open and one tokenizer."""
        self.builder.tokenizer_ns()


class TokenBytes:
    """Tokens whose bytes a variant gives llguidance wrong."""

    version = "1"
    unit = "tokens"
    params = (CONFIGURATIONS,)
    param_names = ("vocab | variant",)

    def track_wrong_tokens(self, configuration):
        """Count them."""
        return suite.wrong_tokens(*(part.strip() for part in configuration.split("|")))
