"""Runs configurations: opens what they need, judges, measures, and hands over entries.

Configurations of one case and vocab are measured together, interleaved; see replay.measure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from llgbench import bridge, case, checks, registry
from llgbench.case import Case
from llgbench.configuration import Configuration
from llgbench.engine import Engine, TokenArray, Tokenizer
from llgbench.errors import GrammarError, UnavailableError
from llgbench.records import Entry
from llgbench.replay import Rounds, Samples, Subject, measure, with_end
from llgbench.variant import Variant, get, reference_of
from llgbench.vocab import Vocab, open_vocab


@dataclass
class Tally:
    """Where the time of a run went, in nanoseconds.

    Attributes:
        inside_ns: in calls of llguidance: tokenizers, compilation, masks, tokens, the judgement.
        setup_ns: opening vocabularies and building token tables.
        started_ns: when the run began, by the monotonic clock.
    """

    inside_ns: int = 0
    setup_ns: int = 0
    started_ns: int = field(default_factory=time.monotonic_ns)

    @property
    def wall_ns(self) -> int:
        """Since the run began."""
        return time.monotonic_ns() - self.started_ns


class Workbench:
    """One vocab with the tokenizers built on it; a context manager that closes them all."""

    def __init__(self, vocab_name: str, tally: Tally | None = None) -> None:
        """Open the vocab.

        Raises:
            UnknownNameError, UnavailableError, VocabError: as open_vocab.
        """
        self._stack = ExitStack()
        self._tokenizers: dict[tuple[Engine, Variant], Tokenizer] = {}
        self._tally = tally or Tally()
        started = time.monotonic_ns()
        self.vocab: Vocab = self._stack.enter_context(open_vocab(vocab_name))
        self._tally.setup_ns += time.monotonic_ns() - started

    def tokenizer(self, engine: Engine, variant: Variant) -> Tokenizer:
        """Return the variant's tokenizer on an engine, built once.

        Raises:
            UnavailableError: the engine lacks what the variant needs.
        """
        key = (engine, variant)
        if key not in self._tokenizers:
            started = time.monotonic_ns()
            tokenizer = self._stack.enter_context(bridge.build(engine, self.vocab, variant))
            self._tokenizers[key] = tokenizer
            self._tally.inside_ns += tokenizer.build_ns
            self._tally.setup_ns += time.monotonic_ns() - started - tokenizer.build_ns
        return self._tokenizers[key]

    def close(self) -> None:
        """Close the tokenizers, then the vocab."""
        self._stack.close()

    def __enter__(self) -> Workbench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def engine_name(configuration: Configuration) -> str:
    """Return the name of the engine a configuration runs on.

    Raises:
        UnavailableError: it needs the fallback, and no engine here has it.
    """
    if configuration.engine != "default":
        return configuration.engine
    variant = get(configuration.variant)
    name = registry.default_for(variant)
    if variant.fallback and registry.entries()[name].path is None:
        raise UnavailableError(registry.why_no_fallback())
    return name


def engine_for(configuration: Configuration) -> Engine:
    """Return the engine a configuration runs on.

    Raises:
        UnavailableError: it is not here, or lacks what the variant needs.
        UnknownNameError: no engine has that name.
    """
    return registry.get(engine_name(configuration))


@dataclass(frozen=True)
class Ready:
    """A configuration with everything it needs."""

    configuration: Configuration
    variant: Variant
    engine_name: str
    engine: Engine
    tokenizer: Tokenizer
    reference: Tokenizer
    grammar: str


def prepare(configuration: Configuration, subject: Case, bench: Workbench) -> Ready:
    """Bring together what a configuration needs.

    Raises:
        UnavailableError: it cannot run here; the message says why.
        GrammarError: the engine does not compile the grammar.
    """
    variant = get(configuration.variant)
    name = engine_name(configuration)
    engine = registry.get(name)
    tokenizer = bench.tokenizer(engine, variant)
    reference = bench.tokenizer(engine, reference_of(variant))
    grammar = subject.lark(bridge.options(engine, variant))
    return Ready(configuration, variant, name, engine, tokenizer, reference, grammar)


def judge(
    item: Ready, subject: Case, traces: Sequence[TokenArray], bench: Workbench
) -> checks.Verdict:
    """Judge every text of a prepared configuration's case.

    Raises:
        GrammarError: the grammar does not compile.
    """
    return checks.judge(
        item.tokenizer, item.reference, item.variant, subject, item.grammar, traces, bench.vocab
    )


def traces_of(subject: Case, vocab: Vocab) -> list[TokenArray]:
    """Return the texts of a case as tokens of a vocab, without an end token.

    Raises:
        UnavailableError: the vocab cannot spell one of them.
    """
    return [vocab.trace(text.data) for text in subject.texts]


def run(
    configurations: Sequence[Configuration],
    rounds: Rounds,
    tally: Tally,
    cases: Mapping[str, Case] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    *,
    strict: bool = False,
) -> Iterator[Entry]:
    """Judge and measure configurations; yield each as it is done.

    What cannot run is yielded too, with its reason.

    Args:
        configurations: in any order; they run vocab by vocab.
        rounds: how often each is replayed.
        tally: told where the time goes.
        cases: cases that are not under grammars/, by name.
        progress: called with a line before each group.
        strict: raise where a grammar does not compile, for grammars the user named.

    Raises:
        UnknownNameError: a vocab, case, variant or engine has no such name.
        GrammarError: with ``strict``; the message has the grammar's file and llguidance's words.
    """
    ordered = sorted(configurations, key=lambda c: c.vocab)  # stable: the rest keeps its order
    for vocab_name, of_vocab in groupby(ordered, key=lambda c: c.vocab):
        try:
            bench = Workbench(vocab_name, tally)
        except UnavailableError as error:
            yield from (Entry(c, unavailable=str(error)) for c in of_vocab)
            continue
        with bench:
            for case_name, group in groupby(of_vocab, key=lambda c: c.case):
                progress(f"{case_name} on {vocab_name}")
                subject = (cases or {}).get(case_name) or case.load(case_name)
                yield from _run_group(list(group), subject, bench, rounds, tally, strict)


def _run_group(
    group: Iterable[Configuration], subject: Case, bench: Workbench, rounds: Rounds, tally: Tally,
    strict: bool,
) -> Iterator[Entry]:  # fmt: skip
    try:
        traces = traces_of(subject, bench.vocab)
    except UnavailableError as error:
        yield from (_not_available(c, subject, str(error)) for c in group)
        return
    ready: list[Ready] = []
    verdicts: dict[str, checks.Verdict] = {}
    for configuration in group:
        try:
            item = prepare(configuration, subject, bench)
            verdicts[str(configuration)] = judge(item, subject, traces, bench)
        except UnavailableError as error:
            yield _not_available(configuration, subject, str(error))
        except GrammarError as error:
            if strict:
                raise GrammarError(f"{subject.path}: {_one_line(error)}") from None
            yield _not_available(configuration, subject, f"does not compile: {_one_line(error)}")
        else:
            ready.append(item)
            tally.inside_ns += verdicts[str(configuration)].inside_ns
    if not ready:
        return
    samples = measure(
        {str(item.configuration): Subject(item.tokenizer, item.grammar) for item in ready},
        [with_end(trace, ready[0].tokenizer) for trace in traces],
        rounds,
    )
    for item in ready:
        name = str(item.configuration)
        tally.inside_ns += samples[name].inside_ns
        yield _entry(item, verdicts[name], samples[name], subject, traces, bench)


def _not_available(configuration: Configuration, subject: Case, reason: str) -> Entry:
    return Entry(configuration, facts=_case_facts(subject), unavailable=reason)


def _case_facts(subject: Case) -> dict[str, Any]:
    return {"case_digest": subject.digest, "tags": list(subject.tags), "value": subject.value}


def _entry(
    item: Ready, verdict: checks.Verdict, samples: Samples, subject: Case,
    traces: Sequence[TokenArray], bench: Workbench,
) -> Entry:  # fmt: skip
    table = bench.vocab.table(item.variant.token_bytes)
    facts: dict[str, Any] = {
        **_case_facts(subject),
        "vocab_sha256": bench.vocab.sha256,
        "vocab_tokens": bench.vocab.n_tokens,
        "wrong_tokens": wrong_tokens(bench.vocab, item.variant),
        "greedy": not item.tokenizer.forces,
        "tokenizer_build_ns": item.tokenizer.build_ns,
        "token_table_ns": table.build_ns,
        "texts": [
            {"name": text.name, "bytes": len(text.data), "tokens": len(trace)}
            for text, trace in zip(subject.texts, traces, strict=True)
        ],
    }
    return Entry(
        item.configuration,
        engine={
            "name": item.engine_name,
            "release": item.engine.release,
            "sha256": item.engine.sha256,
        },
        verdict=verdict.to_json(),
        samples={
            "compile": [np.array(samples.compile_ns, np.uint64)],
            "first_mask": [np.array(samples.first_mask_ns, np.uint64)],
            "cold_mask": samples.cold_mask_ns,
            "cold_consume": samples.cold_consume_ns,
            "warm_mask": samples.warm_mask_ns,
            "warm_consume": samples.warm_consume_ns,
            "cached_mask": samples.cached_mask_ns,
            "allowed": samples.allowed,
            "mask_hash": samples.mask_hash,
        },
        facts=facts,
    )


def wrong_tokens(vocab: Vocab, variant: Variant) -> int:
    """Return how many tokens this variant gives llguidance with wrong bytes."""
    return 0 if variant.token_bytes == "token_to_piece" else checks.token_bytes(vocab).differing


def _one_line(error: Exception, limit: int = 300) -> str:
    line = " ".join(str(error).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
