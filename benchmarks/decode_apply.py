"""One pass of a mask over the candidates, beside llama.cpp's own loop."""

from llgbench import decode_suite


class Apply:
    """One mask over all candidates: llgbench's pass, and llama.cpp's loop beside it."""

    version = "2"
    params = (decode_suite.TOKENS, decode_suite.ALLOWED)
    param_names = ("tokens", "allowed")
    timeout = 60

    def track_ours(self, tokens, allowed):
        """Return the median of llgbench's pass."""
        return decode_suite.apply(tokens, allowed).seconds("ours")

    track_ours.unit = "seconds"

    def track_of_llama_cpp(self, tokens, allowed):
        """Return llgbench's pass in percent of llama.cpp's loop."""
        return decode_suite.apply(tokens, allowed).get("of_llama_cpp")

    track_of_llama_cpp.unit = "%"
