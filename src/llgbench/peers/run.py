"""Engines side by side: every engine on every case, one after the other, each in its processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from llgbench import paths
from llgbench.engines import peers, registry
from llgbench.errors import InputError, UnavailableError, UnknownNameError
from llgbench.inputs import case_file
from llgbench.inputs.case import Case
from llgbench.inputs.configuration import QUICK_JSON_CASES
from llgbench.isolated import Limits
from llgbench.llama.trial import rehearse
from llgbench.measure import provenance
from llgbench.peers.grammars import WhiteSpace
from llgbench.peers.host import Setup
from llgbench.peers.hosts import Host
from llgbench.peers.results import Adapter, CaseResult, Found

# What takes longer for one case is of no use to a request.
SECONDS = 120.0

# Lark as it stands, which every engine that reads Lark at all should.
QUICK_LARK_CASES = ("listed", "fstring-greedy", "cpp-templates", "lazy-stop", "checkpoint@16")


@dataclass(frozen=True)
class Plan:
    """What is compared.

    Attributes:
        engines: their specifications.
        cases: the cases; without any the adapters alone are measured.
        vocabs: the vocabularies' names.
        white_spaces: of the configurations.
        base: llguidance's engine, which ratios are over.
        rounds: cold and warm replays of each text.
        limits: of each case.
    """

    engines: tuple[str, ...]
    cases: tuple[Case, ...]
    vocabs: tuple[str, ...]
    white_spaces: tuple[WhiteSpace, ...]
    base: str
    rounds: int
    limits: Limits


class Progress(Protocol):
    """Shows what is being done; see output.Steps."""

    def doing(self, what: str) -> None:
        """Show what is being done."""

    def done(self, n: int = 1) -> None:
        """Count steps as done."""


def check_engine(name: str) -> None:
    """Refuse an engine that nobody knows, or that is not here, before anything is loaded.

    Raises:
        LlgbenchError: in the words that say what to do.
    """
    spec = peers.parse(name)
    try:
        if spec is None:
            registry.locate(name)
        else:
            peers.locate(spec)
    except UnknownNameError:
        known = [*registry.entries(), *(str(spec) for spec in peers.kept())]
        raise UnknownNameError("engine", name, known) from None


def load_cases(names: Sequence[str], engines: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases asked for; by default the quick JSON cases, and Lark's for who reads it."""
    if not names:
        names = [*QUICK_JSON_CASES]
        kinds = {spec.kind for spec in map(peers.parse, engines) if spec is not None}
        if kinds & {"xgrammar", "glrmask"}:
            names += QUICK_LARK_CASES
    return tuple(case_file.load(name) for name in dict.fromkeys(names))


def run(plan: Plan, show: Callable[[int, str], AbstractContextManager[Progress]]) -> Found:
    """Run every engine on every case; whatever becomes of one, the others go on.

    Args:
        plan: what is compared.
        show: makes the display of the progress.

    Raises:
        InputError: xgrammar's release is asked for twice in one way, or nothing is.
        LlgbenchError: an engine or a vocabulary is not here.
    """
    if not plan.engines:
        raise InputError("name an engine by --engine")
    for name in plan.engines:
        check_engine(name)
    for vocab in plan.vocabs:
        rehearse(vocab)
    lark = any(case.kind == "lark" for case in plan.cases)
    adapters: dict[str, Adapter] = {}
    results: list[CaseResult] = []
    total = len(plan.engines) * len(plan.cases) * len(plan.vocabs) * len(plan.white_spaces)
    with show(total, "comparing engines") as progress:
        for vocab in plan.vocabs:
            for number, space in enumerate(plan.white_spaces):
                for engine in plan.engines:
                    setup = Setup(
                        engine, vocab, space, plan.base, plan.limits, lark=lark,
                        empty=engine not in adapters,
                    )  # fmt: skip
                    with Host(setup) as host:
                        if not plan.cases and (why := host.load()):
                            raise UnavailableError(f"{engine}: {why}")
                        for case in plan.cases:
                            # White space is Lark's own: once is enough.
                            if case.kind == "lark" and number:
                                progress.done()
                                continue
                            progress.doing(f"{engine}: {case.name}")
                            results.append(host.run(case, plan.rounds))
                            progress.done()
                        loaded = host.ready
                        if loaded is not None and engine not in adapters:
                            adapters[engine] = Adapter(
                                engine,
                                loaded.release,
                                loaded.read_ns,
                                loaded.wall_ns,
                                loaded.instructions,
                            )
    about = {**provenance.collect(paths.root()), "base": plan.base, "rounds": plan.rounds}
    return Found(tuple(adapters.values()), tuple(results), about)
