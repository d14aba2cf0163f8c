"""What a server does besides masks: rollback, validation, forced tokens, at every step."""

from llgbench import suite


class Operations:
    """Medians over all steps of a case's texts, after the lexer's states are built."""

    version = "2"
    unit = "seconds"
    params = (
        ["json-nested", "fstring-pieces"],
        ["llama-bpe", "llama-spm"],
        ["greedy_tokenize", "greedy_lexeme_fallback"],
    )
    param_names = ("case", "vocab", "variant")
    timeout = 120

    def setup(self, case, vocab, variant):
        self.operations = suite.Operations(case, vocab, variant)

    def teardown(self, case, vocab, variant):
        self.operations.close()

    def track_rollback(self, case, vocab, variant):
        """Roll one token back."""
        return self.operations.measure("rollback").seconds("rollback")

    def track_validate(self, case, vocab, variant):
        """Validate the next 16 tokens."""
        return self.operations.measure("validate").seconds("validate")

    def track_forced(self, case, vocab, variant):
        """Ask for the forced tokens."""
        return self.operations.measure("forced").seconds("forced")
