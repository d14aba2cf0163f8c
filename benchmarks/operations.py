"""What a server does besides masks: rollback, validation, forced tokens, at every step."""

from llgbench import suite


class Operations:
    """Medians over all steps of a case's texts, after the lexer's states are built."""

    version = "1"
    unit = "ns"
    param_names = ("configuration",)
    params = (
        [
            "json-nested | llama-bpe | greedy_tokenize",
            "json-nested | llama-bpe | greedy_lexeme_fallback",
            "json-nested | llama-spm | greedy_tokenize",
            "fstring-pieces | llama-bpe | greedy_tokenize",
        ],
    )
    timeout = 120

    def setup(self, configuration):
        suite.require_available(configuration)

    def track_rollback(self, configuration):
        """Roll one token back."""
        return suite.operation(configuration, "rollback")

    def track_validate(self, configuration):
        """Validate the next 16 tokens."""
        return suite.operation(configuration, "validate")

    def track_forced(self, configuration):
        """Ask for the forced tokens."""
        return suite.operation(configuration, "forced")
