"""One pass of a mask over the candidates, beside llama.cpp's own loop.

Apart from decode.py, whose ``setup_cache`` ASV would run for these too.
"""

from llgbench import decode_suite


class Apply:
    """One mask over all candidates: llgbench's pass, and llama.cpp's loop beside it."""

    version = "1"
    params = (decode_suite.apply_parameters(),)
    param_names = ("tokens | allowed",)
    timeout = 60

    def track_ours(self, parameter):
        """Return the median of llgbench's pass."""
        return decode_suite.apply(parameter)[0]

    track_ours.unit = "ns"

    def track_of_llama_cpp(self, parameter):
        """Return llgbench's pass in percent of llama.cpp's loop."""
        ours, plain = decode_suite.apply(parameter)
        return 100 * ours / plain

    track_of_llama_cpp.unit = "%"
