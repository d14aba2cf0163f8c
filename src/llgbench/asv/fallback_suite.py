"""What the greedy lexeme fallback costs, as ASV's benchmarks see it; fallback/ measures it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llgbench.asv.cells import Metrics, Run, Values, kept, row
from llgbench.fallback.pending import STATES

VOCAB = "llama-bpe"

# The axes of the benchmarks.
CASES = ["json-nested", "github-workflow", "large-enum"]
LENGTHS = ["64", "256", "1024", "4096"]
STRATEGIES = ["shadow", "replay"]
PENDING = [state.name for state in STATES]
# In instructions: the shortest case, and lengths that take seconds; the whole is
# ``llgbench overhead --count``.
COUNTED_CASES = ["json-tool-call"]
COUNTED_LENGTHS = ["64", "256"]

_RATIOS = ("off_mask", "off_consume", "on_mask", "on_consume")
_COUNTED_RATIOS = (*_RATIOS, "off_step", "on_step")


def ratios(run: Run, case: str) -> Metrics:
    """Return a case's ratios where no boundary is pending: off over stock, on over off.

    Raises:
        NotImplementedError: an engine is not built; as all here.
    """

    def measure() -> Values:
        from llgbench.fallback import overhead

        (found,) = overhead.on_json(VOCAB, rounds=6, cases=(case,))
        return {case: {name: getattr(found, name) for name in _RATIOS}}

    return _row(run, f"ratios of {case}", case, [case], measure)


def pending(run: Run, state: str) -> Metrics:
    """Return a state's mask over the costlier of its two readings alone; states take turns."""

    def measure() -> Values:
        from llgbench.fallback import overhead

        return {found.state: {"time": found.over_costlier} for found in overhead.pending(VOCAB)}

    return _row(run, "pending", state, PENDING, measure)


def checkpoint(run: Run, n: str, strategy: str) -> Metrics:
    """Return the steps of ``checkpoint@n``, in nanoseconds."""

    def measure() -> Values:
        from llgbench.fallback import overhead

        return {
            point.strategy: {"dearest": point.costliest_ns, "median": point.median_ns}
            for point in overhead.curve((int(n),), replays=3)
        }

    return _row(run, f"checkpoint {n}", strategy, STRATEGIES, measure)


def counted_ratios(run: Run, case: str) -> Metrics:
    """Return a case's warm ratios in instructions.

    Raises:
        NotImplementedError: an engine or valgrind is missing; as all that is counted.
    """

    def measure() -> Values:
        from llgbench.fallback import counted

        rows = counted.on_json(VOCAB, seeds=1, cases=(case,))
        (warm,) = (found for found in rows if found.kind == "warm")
        return {case: {name: getattr(warm, name) for name in _COUNTED_RATIOS}}

    return _row(run, f"counted ratios of {case}", case, [case], measure)


def counted_pending(run: Run, state: str) -> Metrics:
    """Return a state's mask over the costlier of its readings alone, in instructions."""

    def measure() -> Values:
        from llgbench.fallback import counted

        return {
            found.state: {"instructions": found.over_costlier} for found in counted.pending(VOCAB)
        }

    return _row(run, "counted pending", state, PENDING, measure)


def counted_checkpoint(run: Run, n: str, strategy: str) -> Metrics:
    """Return the steps of ``checkpoint@n``, warm, in instructions."""

    def measure() -> Values:
        from llgbench.fallback import counted

        return {
            point.strategy: {"dearest": float(point.costliest), "median": point.median}
            for point in counted.curve((int(n),))
        }

    return _row(run, f"counted checkpoint {n}", strategy, STRATEGIES, measure)


def _row(
    run: Run, part: str, name: str, names: Sequence[str], measure: Callable[[], Values]
) -> Metrics:
    from llgbench.errors import LlgbenchError

    def guarded() -> Values:
        try:
            return measure()
        except LlgbenchError as error:
            return dict.fromkeys(names, str(error))

    return row(kept(run, part, guarded), name)
