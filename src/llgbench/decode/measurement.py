"""Decode runs over cases and variants, interleaved, as entries of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from llgbench.decode.loop import Run, check, run
from llgbench.decode.modes import Mode
from llgbench.decode.plan import PARTS, UNCONSTRAINED, Plan
from llgbench.engines.engine import TokenArray
from llgbench.errors import (
    GrammarError,
    UnavailableError,
)
from llgbench.inputs.case import Case, Text
from llgbench.inputs.configuration import Configuration
from llgbench.llama import bridge
from llgbench.llama.model import Context
from llgbench.llama.vocab import Vocab
from llgbench.measure.replay import with_end
from llgbench.measure.runner import Ready, Workbench, judge, prepare, traces_of
from llgbench.measure.trace import trace_of
from llgbench.records.entry import Entry
from llgbench.records.packed import Arrays


@dataclass
class _Side:
    """One configuration and mode while it is measured; unconstrained where nothing is ready."""

    ready: Ready | None
    mode: Mode
    verdict: Mapping[str, Any]
    runs: list[Run] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)


def measure(
    configurations: Sequence[Configuration],
    cases: Mapping[str, Case],
    bench: Workbench,
    context: Context,
    plan: Plan,
    modes: Sequence[Mode],
    doing: Callable[[str], None] = lambda _: None,
) -> Iterator[Entry]:
    """Measure configurations of one vocab beside an unconstrained run; yield an entry for each.

    Within a round the sides take turns over the same tokens, and every other round in the
    opposite order, so that what slows the machine for a while slows them alike.

    Args:
        configurations: of the bench's vocab, in order of their cases.
        cases: by name.
        bench: the vocab with its tokenizers.
        context: of a model with that vocab.
        plan: rounds, sequences and the rest.
        modes: each configuration is measured in each.
        doing: called with a line before each case.

    Raises:
        InputError: the context is too short for a text.
        ModelError: the model's vocabulary is not the bench's.
    """
    context.model.require_vocab(bench.vocab)
    require_room(cases.values(), bench.vocab, context, plan)
    for name, case in cases.items():
        group = [c for c in configurations if c.case == name]
        if group:
            doing(f"{name} on {bench.vocab.name}")
            yield from _measure_case(group, case, bench, context, plan, modes)


def require_room(cases: Iterable[Case], vocab: Vocab, context: Context, plan: Plan) -> None:
    """Refuse a context that is too short, before anything is measured."""
    if plan.free:
        context.require(plan.max_tokens, "what is to be sampled")
        return
    for case in cases:
        for text in decodable(case):
            try:
                n = len(trace_of(text, vocab))
            except UnavailableError:
                break  # the case's entries say so
            context.require(n + 1, f"text {text.name!r} of {case.name}")


def _measure_case(
    group: Sequence[Configuration], case: Case, bench: Workbench, context: Context, plan: Plan,
    modes: Sequence[Mode],
) -> Iterator[Entry]:  # fmt: skip
    texts = decodable(case)
    try:
        if not texts:
            raise UnavailableError("no text of it is accepted, so there is none to decode")
        traces = [trace_of(text, bench.vocab) for text in texts]
    except UnavailableError as error:
        yield from (Entry(c, unavailable=str(error)) for c in group)
        return
    sides = [_Side(None, modes[0], {})]
    for c in group:
        try:
            ready = prepare(c, case, bench)
            verdict = judge(ready, case, traces_of(case, bench.vocab), bench).to_json()
        except UnavailableError as error:
            yield Entry(c, unavailable=str(error))
        except GrammarError as error:
            yield Entry(c, unavailable=f"does not compile: {' '.join(str(error).split())}")
        else:
            sides += [_Side(ready, mode, verdict) for mode in modes]
    if len(sides) == 1:
        return
    tokenizer = next(side.ready for side in sides if side.ready).tokenizer
    ended = [with_end(trace, tokenizer) for trace in traces]
    for number in range(plan.rounds):
        for trace in ended[:1] if plan.free else ended:
            for side in sides if number % 2 == 0 else reversed(sides):
                _run_side(side, case, bench, context, None if plan.free else trace, plan, number)
    for side in sides:
        yield _entry(side, case, group[0].vocab, bench, context, plan, texts, ended)


def _run_side(
    side: _Side, case: Case, bench: Workbench, context: Context, trace: TokenArray | None,
    plan: Plan, number: int,
) -> None:  # fmt: skip
    ready = side.ready
    tokenizer, grammar = (ready.tokenizer, ready.grammar) if ready else (None, "")
    seed = plan.seed + number * plan.sequences
    done = run(context, tokenizer, grammar, trace, plan, side.mode, seed)
    side.runs.append(done)
    if ready is not None and trace is None:
        side.checked += [
            check(ready.engine, bench.vocab, case, ready.variant, tokens, bench.vocab.eos)
            for tokens in done.committed
        ]


def decodable(case: Case) -> list[Text]:
    """Return the texts to decode: those that stock accepts, or the fallback where stock does not.

    A text of which nothing is recorded is taken, too.

    A text that every lexer rejects has no place in a decode: no sampler would have written it.
    """
    texts = [t for t in case.texts if t.stock is None or t.stock.accepted]
    return texts or [t for t in case.texts if t.fallback is not None and t.fallback.accepted]


def _entry(
    side: _Side, case: Case, vocab_name: str, bench: Workbench, context: Context, plan: Plan,
    texts: Sequence[Text], traces: Sequence[TokenArray],
) -> Entry:  # fmt: skip
    sound = [done.sound for done in side.runs]
    samples: dict[str, Arrays] = {
        name: [steps[f"{name}_ns"].copy() for steps in sound] for name in ("wall", *PARTS)
    }
    for name in ("n_batch", "n_committed", "n_forced", "n_missed", "n_refused"):
        samples[name] = [steps[name].astype(np.uint64) for steps in sound]
    samples["compile"] = [np.array(done.compile_ns, np.uint64) for done in side.runs]
    lost = [done.lost_at for done in side.runs if done.lost_at is not None]
    facts: dict[str, Any] = {
        "kind": "decode",
        "mode": side.mode.name if side.ready else UNCONSTRAINED,
        "plan": asdict(plan),
        "model": context.model.facts(),
        "threads": context.threads,
        "context": context.length,
        "case_digest": case.digest,
        "vocab_sha256": bench.vocab.sha256,
        "vocab_tokens": bench.vocab.n_tokens,
        "texts": [
            {"name": text.name, "bytes": len(text.data), "tokens": len(trace)}
            for text, trace in zip(texts, traces, strict=True)
        ],
        "runs": len(side.runs),
        "drops": sum(done.drops for done in side.runs),
        "errors": sum(done.errors for done in side.runs),
        "error": next((done.error for done in side.runs if done.error), ""),
        "lost_at": lost[0] if lost else None,
        "checked": side.checked,
    }
    if side.ready is None:
        case_name = case.name
        return Entry(
            Configuration(case_name, vocab_name, UNCONSTRAINED), samples=samples, facts=facts
        )
    ready = side.ready
    facts["greedy"] = not ready.tokenizer.forces
    facts["options"] = bridge.options(ready.engine, ready.variant)
    engine = {"release": ready.engine.release, "sha256": ready.engine.sha256}
    return Entry(ready.configuration, engine, side.verdict, samples, facts)
