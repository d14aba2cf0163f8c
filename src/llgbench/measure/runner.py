"""What a configuration needs, opened and put together: vocab, engine, tokenizers, grammar."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from llgbench.engines import registry
from llgbench.engines.engine import Engine, TokenArray, Tokenizer
from llgbench.errors import UnavailableError
from llgbench.inputs.case import Case
from llgbench.inputs.configuration import Configuration
from llgbench.inputs.variant import Variant, get, reference_of
from llgbench.llama import bridge
from llgbench.llama.vocab import Vocab, open_vocab
from llgbench.measure import checks, probes
from llgbench.measure.trace import trace_of


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
        self._engines: dict[tuple[str, str], tuple[str, Engine]] = {}
        self._tally = tally or Tally()
        started = time.monotonic_ns()
        self.vocab: Vocab = self._stack.enter_context(open_vocab(vocab_name))
        self._tally.setup_ns += time.monotonic_ns() - started

    def engine(self, configuration: Configuration) -> tuple[str, Engine]:
        """Return the name and the engine a configuration runs on, looked up once.

        A look-up takes a hash of the library, some 40 ms.

        Raises:
            UnavailableError, UnknownNameError, EngineError: as engine_name and registry.get.
        """
        key = (configuration.engine, configuration.variant)
        if key not in self._engines:
            name = engine_name(configuration)
            self._engines[key] = name, registry.get(name)
        return self._engines[key]

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

    def reference(self, item: Ready) -> Tokenizer:
        """Return the tokenizer that a configuration is judged against, built once.

        Raises:
            UnavailableError: the engine lacks what it needs.
        """
        return self.tokenizer(item.engine, reference_of(item.variant))

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
    grammar: str


def prepare(configuration: Configuration, subject: Case, bench: Workbench) -> Ready:
    """Bring together what a configuration needs.

    Raises:
        UnavailableError: it cannot run here; the message says why.
        GrammarError: the engine does not compile the grammar.
    """
    variant = get(configuration.variant)
    name, engine = bench.engine(configuration)
    tokenizer = bench.tokenizer(engine, variant)
    grammar = subject.lark(bridge.options(engine, variant))
    return Ready(configuration, variant, name, engine, tokenizer, grammar)


def judge(
    item: Ready, subject: Case, traces: Sequence[TokenArray], bench: Workbench
) -> checks.Verdict:
    """Judge every text of a prepared configuration's case.

    Raises:
        GrammarError: the grammar does not compile.
    """
    return checks.judge(
        item.tokenizer,
        bench.reference(item),
        item.variant,
        subject,
        item.grammar,
        traces,
        bench.vocab,
    )


def traces_of(subject: Case, vocab: Vocab) -> list[TokenArray]:
    """Return the texts of a case as tokens of a vocab, without an end token.

    Raises:
        UnavailableError: the vocab cannot spell one of them.
    """
    return [trace_of(text, vocab) for text in subject.texts]


def wrong_tokens(vocab: Vocab, variant: Variant) -> int:
    """Return how many tokens this variant gives llguidance with wrong bytes."""
    return 0 if variant.token_bytes == "token_to_piece" else probes.token_bytes(vocab).differing
