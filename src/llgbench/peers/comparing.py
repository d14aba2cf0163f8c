"""``llgbench compare`` where a side is not llguidance: the same processes, table and verdicts.

What differs is what may be compared. Masks of different engines need not be equal; a ratio is
formed of the steps at which they are, or differ by a named class (classes.py). The rest is counted
and named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from llgbench import files, isolated
from llgbench.compare import run as compare
from llgbench.compare import sides
from llgbench.compare.comparison import Comparison, Plan
from llgbench.compare.messages import Answer, Job
from llgbench.compare.run import Timed
from llgbench.compare.side import Side
from llgbench.compare.workers import WorkerLostError
from llgbench.engines import peers
from llgbench.errors import CompareError, InputError, LlgbenchError, ProcessError
from llgbench.inputs.configuration import QUICK_JSON_CASES
from llgbench.isolated import Limits
from llgbench.peers import comparing_worker

# How llguidance is bridged.
VARIANT = "greedy_tokenize"

# To load both engines and judge all cases by both.
_SETUP_S = 900.0


def plan_of(
    cases: Sequence[str], vocabs: Sequence[str], white_space: str, threshold: float | None,
    budget_s: float,
) -> Plan:  # fmt: skip
    """Return the plan of a comparison; without cases they are the quick JSON cases.

    Raises:
        LlgbenchError: as compare.run.plan_of.
    """
    plan = compare.plan_of(cases or QUICK_JSON_CASES, vocabs, VARIANT, threshold, budget_s)
    return replace(plan, white_space=white_space)


def run(
    base_spec: str,
    head_spec: str | None,
    plan: Plan,
    folder: Path | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
    announce: Callable[[str], None] = lambda _: None,
) -> tuple[Comparison, Path]:
    """Compare two engines; see compare.run.run for the arguments.

    Raises:
        LlgbenchError: an engine is not here, or no case can be compared.
    """
    base = _resolve(base_spec, announce)
    head = sides.twin(base) if head_spec is None else _resolve(head_spec, announce)
    if base.spec == head.spec:
        raise InputError(f"both sides are {base.spec}; for the noise floor: --self {base.spec}")

    def measure() -> Timed:
        timed = compare.compare(base, head, plan, say, work=_spawn)
        # The costliest steps are told by their place among those that were compared: no step's.
        return replace(timed, comparison=replace(timed.comparison, costliest=()))

    return compare.kept(measure, folder, self_test=head_spec is None)


def _resolve(text: str, announce: Callable[[str], None]) -> Side:
    spec = peers.parse(text)
    if spec is None:
        side = sides.resolve(text, announce)
        if side.fallback is not None:
            raise InputError(f"{text}: beside another engine llguidance is as it is published")
        return side
    found = peers.locate(spec)
    if spec.kind == "gbnf":
        from llgbench.llama import gbnf

        path, release = Path(gbnf.library()), f"of llama-cpp-python {version('llama-cpp-python')}"
    else:
        path, release = found.paths[-1], found.release.partition(" ")[2]
    engine = found.release.partition(" ")[0]
    return Side(str(spec), path, None, release, files.sha256(path), engine=engine)


def _spawn(job: Job) -> Answer:
    """Do a job in a process of its own; as compare.workers.spawn."""
    try:
        limits = Limits.default(job.seconds + _SETUP_S)
        return isolated.call_within(limits, comparing_worker.run, job)
    except ProcessError as error:
        raise WorkerLostError(str(error)) from None
    except LlgbenchError as error:
        raise CompareError(str(error)) from None
