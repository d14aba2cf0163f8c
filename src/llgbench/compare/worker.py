"""One process of a comparison: both engines loaded, one vocab, replays taking turns.

Run as ``python -m llgbench.compare.worker JOB RESULT``, both JSON files; see :class:`Job`. The
masks of every step are compared before anything is timed.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from llgbench.compare.sides import SIDES, Side
from llgbench.engines import counters
from llgbench.engines.engine import TokenArray, load
from llgbench.errors import CompareError, GrammarError, UnavailableError
from llgbench.inputs import case_file
from llgbench.inputs.case import Case
from llgbench.inputs.variant import get
from llgbench.llama import bridge
from llgbench.llama.vocab import Vocab, open_vocab
from llgbench.measure import runner
from llgbench.measure.counter import Compile, Free, JobBuilder
from llgbench.measure.counter import Replay as CountedReplay
from llgbench.measure.replay import End, Replay, replay, with_end
from llgbench.measure.rounds import Subject
from llgbench.measure.serving import serve
from llgbench.records import stats
from llgbench.records.packed import pack

# A case is replayed an even number of times, so that each side goes first as often.
MIN_ROUNDS = 2
MAX_ROUNDS = 400

# Under callgrind: of each side, at most so many steps of a trace, and so many replays.
COUNTED_STEPS = 600
COUNTED_ROUNDS = 8

# A replay as it is counted: a matcher of its own for every replay of every case.
_MATCHER = 0

# How many of the differing tokens a message shows.
_SHOWN = 5


@dataclass(frozen=True)
class Job:
    """What one process does.

    Attributes:
        number: of the process, from 0; every other one loads the head first.
        base: one side.
        head: the other.
        vocab: on which vocabulary.
        variant: which bridge both sides get.
        cases: by name.
        seconds: how long to measure, shared by the cases; each gets MIN_ROUNDS in any event.
        mode: verify masks and ``time``; ``verify`` alone; ``count``, verify and prepare what is
            counted under callgrind; or ``history``, which times what differs too, since a commit
            may be there to change masks, and goes on where a case cannot be measured.
        folder: where ``count`` puts its files.
        unequal: whether to go on with the other cases where the masks of one differ.
    """

    number: int
    base: Side
    head: Side
    vocab: str
    variant: str
    cases: tuple[str, ...]
    seconds: float
    unequal: bool = False
    mode: Literal["time", "verify", "count", "history"] = "time"
    folder: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the job as plain data."""
        return {**asdict(self), "base": self.base.to_json(), "head": self.head.to_json()}

    def write(self, path: Path) -> None:
        """Write the job as JSON."""
        path.write_text(json.dumps(self.to_json()))

    @classmethod
    def read(cls, path: Path) -> Job:
        """Read what :meth:`write` wrote."""
        data = json.loads(path.read_text())
        for name in SIDES:
            data[name] = Side.from_json(data[name])
        return cls(**{**data, "cases": tuple(data["cases"])})


def subjects(job: Job, vocab: Vocab, stack: ExitStack) -> dict[str, Any]:
    """Build each side's tokenizer; the order alternates by process.

    Returns:
        Tokenizers by side.
    """
    order = SIDES if job.number % 2 == 0 else SIDES[::-1]
    variant = get(job.variant)
    return {
        name: stack.enter_context(bridge.build(load(getattr(job, name).library), vocab, variant))
        for name in order
    }


def run(job: Job) -> dict[str, Any]:
    """Verify and measure, or prepare a count; return the result as plain data."""
    started = time.monotonic()
    found: dict[str, Any] = {"cases": {}, "differences": [], "counters": [], "refused": {}}
    with ExitStack() as stack:
        vocab = stack.enter_context(open_vocab(job.vocab))
        tokenizers = subjects(job, vocab, stack)
        found["tokenizer_ns"] = {side: t.build_ns for side, t in tokenizers.items()}
        prepared = []
        for name in job.cases:
            loaded = case_file.load(name)
            pair = {
                side: Subject(tokenizers[side], loaded.lark(getattr(job, side).options))
                for side in SIDES
            }
            try:
                traces = [with_end(t, tokenizers["base"]) for t in runner.traces_of(loaded, vocab)]
                difference, steps = verify(pair, loaded, traces, vocab)
            except (CompareError, UnavailableError) as error:
                if job.mode != "history":
                    raise
                found["refused"][name] = " ".join(str(error).split())
                continue
            if difference is not None:
                found["differences"].append(difference)
                if job.mode != "history":
                    if not job.unequal:
                        return found
                    continue
            found["cases"][name] = {"texts": [t.name for t in loaded.texts], "steps": steps}
            if job.mode in ("verify", "count"):
                found["counters"] += _counters(name, pair, traces)
            prepared.append((name, pair, traces))
        found["setup_s"] = time.monotonic() - started
        if job.mode == "count":
            counted = [(name, pair, max(traces, key=len)) for name, pair, traces in prepared]
            found["recorded"], asked = to_count(job, counted, vocab)
            found["counters"] += asked
        if job.mode in ("verify", "count"):
            return found
        for at, (name, pair, traces) in enumerate(prepared):
            left = started + found["setup_s"] + job.seconds - time.monotonic()
            share = left / (len(prepared) - at)
            least = MIN_ROUNDS
            if job.mode == "history":
                # Enough compilations that the process carries a median of them.
                least = max(least, -(-2 * stats.MIN_ABOVE // len(traces)))
            found["cases"][name].update(measure(pair, traces, share, job.number, least))
    found["metadata"] = machine_metadata()
    found["wall_s"] = time.monotonic() - started
    return found


def verify(
    pair: Mapping[str, Subject], loaded: Case, traces: Sequence[TokenArray], vocab: Vocab
) -> tuple[dict[str, Any] | None, int]:
    """Compare the masks of every step of a case.

    Returns:
        The first difference as plain data (None where there is none), and how many masks were
        compared.

    Raises:
        CompareError: a grammar does not compile.
    """
    steps = 0
    for text, trace in zip(loaded.texts, traces, strict=True):
        done: dict[str, Replay] = {}
        for side in SIDES:
            try:
                with pair[side].tokenizer.matcher(pair[side].grammar) as matcher:
                    done[side] = replay(matcher, trace, facts=True)
            except GrammarError as error:
                why = " ".join(str(error).split())[:200]
                raise CompareError(f"{loaded.name} does not compile on {side}: {why}") from None
        base, head = done["base"], done["head"]
        n = min(len(base.steps), len(head.steps))
        unequal = np.flatnonzero(base.steps["mask_hash"][:n] != head.steps["mask_hash"][:n])
        steps += n
        if len(unequal):
            at = int(unequal[0])
        elif base.end != head.end or len(base.steps) != len(head.steps):
            at = max(n - 1, 0)
        else:
            continue
        return _difference(pair, loaded.name, text.name, trace, at, done, vocab), steps
    return None, steps


def _difference(
    pair: Mapping[str, Subject], case_name: str, text: str, trace: TokenArray, at: int,
    done: Mapping[str, Replay], vocab: Vocab,
) -> dict[str, Any]:  # fmt: skip
    allowed: dict[str, set[int]] = {}
    for side in SIDES:
        with pair[side].tokenizer.matcher(pair[side].grammar) as matcher:
            replay(matcher, np.ascontiguousarray(trace[:at]))
            found = matcher.allowed()
            allowed[side] = set() if found is None else set(found.tolist())
    pieces = vocab.table("token_to_piece").tokens
    only = {side: sorted(allowed[side] - allowed[other]) for side, other in (SIDES, SIDES[::-1])}
    return {
        "case": case_name,
        "text": text,
        "step": at,
        "so_far": vocab.spell(trace[:at]).decode(errors="replace")[-60:],
        "next": pieces[int(trace[at])].decode(errors="replace") if at < len(trace) else "",
        "allowed": {side: len(tokens) for side, tokens in allowed.items()},
        "only": {
            side: [[t, pieces[t].decode(errors="replace")] for t in tokens[:_SHOWN]]
            for side, tokens in only.items()
        },
        "n_only": {side: len(tokens) for side, tokens in only.items()},
        "end": {side: done[side].end.name.lower() for side in SIDES},
    }


def measure(
    pair: Mapping[str, Subject], traces: Sequence[TokenArray], seconds: float, number: int,
    least: int = MIN_ROUNDS,
) -> dict[str, Any]:  # fmt: skip
    """Replay the traces of a case by both sides in turn, each replay on a fresh matcher.

    As often as fits into ``seconds``, but at least ``least`` times.

    Returns:
        ``rounds`` and, by side, ``compile`` (one time a replay), ``mask`` and ``consume`` (one
        array a replay; the replays of a round follow each other text by text), packed, in
        nanoseconds.
    """
    times: dict[str, dict[str, list[Any]]] = {
        side: {"compile": [], "mask": [], "consume": []} for side in SIDES
    }
    until = time.monotonic() + seconds
    rounds = 0
    while rounds < MAX_ROUNDS and (rounds < least or rounds % 2 or time.monotonic() < until):
        for at, trace in enumerate(traces):
            first = (rounds + at + number) % 2
            done: dict[str, Replay] = {}
            for side in (SIDES[first], SIDES[1 - first]):
                subject = pair[side]
                with subject.tokenizer.matcher(subject.grammar) as matcher:
                    done[side] = replay(matcher, trace)
                    times[side]["compile"].append(np.array([matcher.compile_ns], np.uint64))
                if done[side].end in (End.MASK_ERROR, End.CONSUME_ERROR):
                    raise CompareError(
                        f"{side} fails in the middle of a text: {done[side].end.name}"
                    )
            # Where one side stops earlier (its masks differ then) only the steps of both count.
            masks = min(len(of_side.op_ns) for of_side in done.values())
            consumed = min(len(of_side.consume_ns) for of_side in done.values())
            for side, of_side in done.items():
                times[side]["mask"].append(of_side.op_ns[:masks])
                times[side]["consume"].append(of_side.consume_ns[:consumed])
        rounds += 1
    packed = {
        side: {name: pack(arrays) for name, arrays in of_side.items()}
        for side, of_side in times.items()
    }
    return {"rounds": rounds, **packed}


def to_count(
    job: Job, cases: Sequence[tuple[str, Mapping[str, Subject], TokenArray]], vocab: Vocab
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Prepare what is counted: the longest trace of each case, replayed by both sides.

    Short traces are replayed several times, each on a fresh matcher: its hash maps are laid out
    anew, which moves the counts by some tenths of a percent. The dumps are named
    ``NUMBER SIDE compile``, ``… mask`` and ``… consume``, by the case's place.

    Returns:
        Two jobs, of which the second begins with the head; and, as work counters, how often the
        engines called tokenize_fn, where that differs.
    """
    recorded: list[dict[str, Any]] = []
    counters: list[dict[str, Any]] = []
    variant = get(job.variant)
    for number, order in enumerate((SIDES, SIDES[::-1])):
        builder = JobBuilder()
        tokenizers = {
            side: builder.tokenizer(load(getattr(job, side).library), vocab, variant)
            for side in order
        }
        owners: dict[int, tuple[str, str]] = {}
        for at, (name, pair, longest) in enumerate(cases):
            trace = np.ascontiguousarray(longest[:COUNTED_STEPS])
            rounds = max(2, min(COUNTED_ROUNDS, COUNTED_STEPS // len(trace)))
            for side in (order + order[::-1]) * (rounds // 2):
                begin = len(builder.steps)
                builder.add(
                    Compile(_MATCHER, tokenizers[side], pair[side].grammar, f"{at} {side}"),
                    CountedReplay(_MATCHER, trace, label=f"{at} {side}"),
                    Free(_MATCHER),
                )
                owners |= dict.fromkeys(range(begin, len(builder.steps)), (name, side))
        done = builder.record(Path(job.folder) / str(number))
        recorded.append(done.to_json())
    asked: Counter[tuple[str, str]] = Counter()
    for at, owner in owners.items():
        asked[owner] += done.asked[at]
    for name, _, _ in cases:
        base, head = (asked[name, side] for side in SIDES)
        if base != head:
            counters.append({"case": name, "counter": "tokenize_calls", "base": base, "head": head})
    return recorded, counters


def _counters(
    name: str, pair: Mapping[str, Subject], traces: Sequence[TokenArray]
) -> list[dict[str, Any]]:
    """Return the work counters of a case's longest trace, a line each, where both sides count."""
    sums: dict[str, dict[str, int]] = {}
    for side in SIDES:
        with pair[side].tokenizer.matcher(pair[side].grammar) as matcher:
            found = counters.collect(matcher, max(traces, key=len))
        if found is None:
            return []
        sums[side] = found
    return [
        {
            "case": name,
            "counter": counter,
            "base": sums["base"][counter],
            "head": sums["head"][counter],
        }
        for counter in counters.NAMES
    ]


def machine_metadata() -> dict[str, Any]:
    """Return what pyperf says of this process and machine."""
    import pyperf

    found: dict[str, Any] = pyperf.Run([1.0], collect_metadata=True).get_metadata()
    return {k: v for k, v in found.items() if isinstance(v, str | int | float)}


if __name__ == "__main__":
    serve(lambda job: run(Job.read(job)))
