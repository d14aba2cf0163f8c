"""One process of ``llgbench overhead --count``; callgrind.run starts it.

Run as ``python -m llgbench.overhead_worker JOB RESULT``, both JSON files; see :class:`Job`. What it
counts goes to callgrind's dumps, each named by words: the name of what is counted with its spaces
taken out, the side, and what was collected.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from llgbench import case, runner
from llgbench._native import ffi, lib
from llgbench.compare_worker import COUNTED_STEPS
from llgbench.engine import Engine, Matcher, TokenArray, load
from llgbench.errors import CompareError
from llgbench.fallback_states import Strategy, checkpoint, dropper, matchers_of
from llgbench.pending import STATES
from llgbench.replay import replay, with_end
from llgbench.runner import Workbench
from llgbench.serving import serve
from llgbench.variant import get

KINDS = ("cold", "warm")
PARTS = {"mask": lib.LB_PART_MASK, "consume": lib.LB_PART_CONSUME}

# A pending mask is counted so often; the first one reads the state's bytes for the first time.
MASKS = 3


@dataclass(frozen=True)
class Job:
    """What one process counts.

    Attributes:
        what: ``json`` counts the longest text of cases, cold and warm, masks and tokens apart;
            ``pending`` the masks of pairs; ``curve`` every step of a checkpoint.
        engines: libraries by side; ``pending`` and ``curve`` have the one side ``on``.
        option: the grammar option of the side ``on``.
        vocab: on which vocabulary.
        names: cases, pairs, or ``N STRATEGY``.
    """

    what: Literal["json", "pending", "curve"]
    engines: dict[str, str]
    option: str
    vocab: str
    names: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the job as plain data."""
        return asdict(self)

    @classmethod
    def read(cls, path: Path) -> Job:
        """Read a job from a JSON file."""
        data = json.loads(path.read_text())
        return cls(**{**data, "names": tuple(data["names"])})

    def options(self, side: str) -> dict[str, Any]:
        """Return the grammar options of a side."""
        return {self.option: True} if side == "on" else {}


def run(job: Job) -> dict[str, Any]:
    """Count; return how many steps or masks each label has.

    Raises:
        CompareError: a mask fails, or a grammar refuses its text.
    """
    count = {"json": _json, "pending": _pending, "curve": _curve}[job.what]
    found: dict[str, Any] = {}
    with Workbench(job.vocab) as bench:
        for side, library in job.engines.items():
            for name in job.names:
                at = label(name, side)
                found[at] = count(job, load(library), bench, side, name)
    return found


def label(name: str, side: str, *words: str) -> str:
    """Return the words that name a dump."""
    return " ".join((name.replace(" ", ""), side, *words))


def _json(job: Job, engine: Engine, bench: Workbench, side: str, name: str) -> int:
    """Count the longest text of a case: a dump a replay and part.

    The parts are counted in replays of their own, each on a fresh matcher: a dump between two calls
    costs milliseconds, and sums are all that is asked for.
    """
    steps = 0
    subject = case.load(name)
    grammar = subject.lark(job.options(side))
    tokenizer = bench.tokenizer(engine, get("greedy_tokenize"))
    texts = runner.traces_of(subject, bench.vocab)
    trace = np.ascontiguousarray(with_end(max(texts, key=len), tokenizer)[:COUNTED_STEPS])
    for part, flag in PARTS.items():
        with tokenizer.matcher(grammar) as matcher:
            for kind in KINDS:
                named = label(name, side, kind, part)
                steps = _count_replay(matcher, trace, flag, lib.LB_DUMP_REPLAY, named)
                matcher.reset()
    return steps


def _pending(job: Job, engine: Engine, bench: Workbench, side: str, name: str) -> int:
    """Count the masks of a state by all its readings, the one kept dropped before each."""
    (state,) = (state for state in STATES if state.name == name)
    drop = dropper(engine)
    with ExitStack() as stack:
        matchers = matchers_of(state, engine, bench, stack)
        for _ in range(MASKS):
            for reading, matcher in matchers.items():
                named = label(name, side, reading).encode()
                if lib.lb_count_mask(engine.api, matcher.pointer, drop, named) != 0:
                    raise CompareError(f"the mask of {name} fails: {matcher.error()}")
    return MASKS


def _curve(job: Job, engine: Engine, bench: Workbench, side: str, name: str) -> int:
    """Count each step of a checkpoint, after a first replay that builds the lexer's states."""
    n, _, strategy = name.partition(" ")
    matcher, trace = checkpoint(int(n), cast(Strategy, strategy), engine, bench)
    with matcher:
        replay(matcher, trace)
        matcher.reset()
        both = lib.LB_PART_MASK | lib.LB_PART_CONSUME
        return _count_replay(matcher, trace, both, lib.LB_DUMP_STEP, label(name, side))


def _count_replay(matcher: Matcher, trace: TokenArray, parts: int, after: int, named: str) -> int:
    """Replay a trace from the present state under callgrind; return the steps taken."""
    return int(
        lib.lb_count_replay(
            matcher.tokenizer.engine.api, matcher.pointer,
            ffi.from_buffer("uint32_t[]", trace), len(trace), parts, after, named.encode(),
        )
    )  # fmt: skip


if __name__ == "__main__":
    serve(lambda job: run(Job.read(job)))
