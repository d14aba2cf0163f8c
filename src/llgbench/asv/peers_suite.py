"""What the ASV benchmarks of other engines call: an engine on a case, measured when asked for.

Cheap to import: ASV's discovery reads the parameters in every process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llgbench.asv.cells import Metrics, Run, Value, Values, kept, row, samples

if TYPE_CHECKING:
    from llgbench.peers.results import CaseResult
    from llgbench.peers.run import Plan

VOCAB = "llama-bpe"
# Without llama.cpp's grammars, of which a mask takes tenths of a second.
ENGINES = [
    "wheel", "xgrammar:0.2.9", "xgrammar:0.2.9+lazy", "outlines:0.2.14", "glrmask:0.5.0",
]  # fmt: skip
CASES = ["json-tool-call"]


def peer(run: Run, engine: str, case: str) -> Metrics:
    """Return the metrics of an engine on a case.

    Raises:
        NotImplementedError: the engine is not here, or the case's texts are not right.
    """
    name = f"{engine} on {case}"

    def measure() -> Values:
        from llgbench.errors import UnavailableError
        from llgbench.output import steps
        from llgbench.peers import run as peers

        try:
            (found,) = peers.run(plan(engine, case), steps).results
        except UnavailableError as error:
            return {name: str(error)}
        return {name: of_result(found)}

    return row(kept(run, f"peers-{engine}-{case}", measure), name)


def plan(engine: str, case: str, vocab: str = VOCAB, rounds: int = 3) -> Plan:
    """Return what is measured."""
    from llgbench.engines.spec import WHEEL
    from llgbench.isolated import Limits
    from llgbench.peers import run as peers

    return peers.Plan(
        engines=(engine,), cases=peers.load_cases((case,), (engine,)), vocabs=(vocab,),
        white_spaces=("spaced",), base=WHEEL, rounds=rounds,
        limits=Limits.default(peers.SECONDS),
    )  # fmt: skip


def of_result(found: CaseResult) -> dict[str, Value] | str:
    """Return the metrics of a result, times in nanoseconds; or why it has none."""
    from llgbench.peers.figures import comparison, percentile

    s = found.samples
    if found.outcome != "right" or s is None:
        return f"{found.outcome}: {found.reason}"
    return {
        "compile": samples([float(ns) for ns in s.compile_ns]),
        "first_mask": samples([float(ns) for ns in s.first_mask_ns]),
        "mask_p50": percentile(s.cold_mask_ns, 50),
        "warm_mask_p50": percentile(s.warm_mask_ns, 50),
        "accept_p50": percentile(s.cold_accept_ns, 50),
        "over_llguidance": comparison(found)[0],
        "memory": None if found.memory_bytes is None else float(found.memory_bytes),
        "differing": float(found.masks.differing),
    }
