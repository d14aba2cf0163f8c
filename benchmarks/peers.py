"""Other engines beside llguidance; n/a, with the reason on stderr, where one is not added."""

from llgbench import peers_suite


def setup_cache():
    """Begin a run; nothing is measured here."""
    return peers_suite.begin()


class Peers:
    """On llama-bpe, JSON spaced, cold unless a name says warm; where the texts are right."""

    version = "1"
    unit = "seconds"
    params = (peers_suite.ENGINES, peers_suite.CASES)
    param_names = ("engine", "case")
    timeout = 900

    def setup(self, run, engine, case):
        self.metrics = peers_suite.peer(run, engine, case)

    def track_compile(self, *_):
        """Return the compilation of a grammar."""
        return self.metrics.seconds("compile")

    def track_first_mask(self, *_):
        """Return the first mask of a fresh matcher."""
        return self.metrics.seconds("first_mask")

    def track_mask_p50(self, *_):
        """Return the median mask."""
        return self.metrics.seconds("mask_p50")

    def track_warm_mask_p50(self, *_):
        """Return the median mask of a second replay."""
        return self.metrics.seconds("warm_mask_p50")

    def track_accept_p50(self, *_):
        """Return the median accept."""
        return self.metrics.seconds("accept_p50")

    def track_over_llguidance(self, *_):
        """Return the median mask over llguidance's, of the steps that may be compared."""
        return self.metrics.get("over_llguidance")

    track_over_llguidance.unit = "ratio"

    def track_memory(self, *_):
        """Return what the compiled grammar takes."""
        return self.metrics.get("memory")

    track_memory.unit = "bytes"

    def track_differing(self, *_):
        """Return how many masks differ from the reference's beyond every named class."""
        return self.metrics.get("differing")

    track_differing.unit = "count"
