"""Benchmarks that measure by themselves: a server's other operations, and building a tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llgbench.asv.cells import Metrics, samples, skip
from llgbench.inputs.configuration import Configuration

if TYPE_CHECKING:
    from llgbench.engines.engine import Engine
    from llgbench.measure.runner import Workbench


def opened(case: str, vocab: str, variant: str) -> tuple[Workbench, Engine]:
    """Return a vocab and the engine of a variant.

    Raises:
        NotImplementedError: they are not here; for an ASV ``setup``, since raised anywhere else it
            would count as a failure.
    """
    from llgbench.errors import UnavailableError
    from llgbench.measure import runner

    wanted = Configuration(case, vocab, variant)
    try:
        engine = runner.engine_for(wanted)
        return runner.Workbench(vocab), engine
    except UnavailableError as error:
        skip(f"{wanted}: {error}")


class Operations:
    """What a server does besides masks, at every step of a case's texts."""

    def __init__(self, case: str, vocab: str, variant: str) -> None:
        """Open the vocab and the engine.

        Raises:
            NotImplementedError: they are not here.
        """
        self._wanted = Configuration(case, vocab, variant)
        self._bench, _ = opened(case, vocab, variant)

    def measure(self, name: str, rounds: int = 5) -> Metrics:
        """Time one operation: validate, forced or rollback.

        Returns:
            Under the operation's name, the median of each round, nanoseconds.
        """
        import numpy as np

        from llgbench.inputs import case_file
        from llgbench.measure import runner
        from llgbench.measure.replay import Op, replay
        from llgbench.records import stats

        subject = case_file.load(self._wanted.case)
        item = runner.prepare(self._wanted, subject, self._bench)
        traces = runner.traces_of(subject, self._bench.vocab)
        medians = []
        with item.tokenizer.matcher(item.grammar) as matcher:
            for trace in traces:  # the lexer's states are built here, not in what is timed
                replay(matcher, trace, reset=True)
            for _ in range(rounds):
                done = [
                    replay(matcher, trace, Op[name.upper()], reset=True).op_ns for trace in traces
                ]
                medians.append(float(np.median(stats.pool(done))))
        return Metrics(str(self._wanted), {name: samples(medians)})

    def close(self) -> None:
        """Close what was opened."""
        self._bench.close()


class TokenizerBuilder:
    """Builds a variant's tokenizer and token table, again and again, with the times in ns."""

    def __init__(self, vocab: str, variant: str) -> None:
        """Open the vocab and the engine.

        Raises:
            NotImplementedError: they are not here.
        """
        from llgbench.inputs.variant import get

        self._variant = get(variant)
        self._name = f"{vocab} | {variant}"
        self._bench, self._engine = opened("", vocab, variant)

    def table_ns(self) -> int:
        """Build the token table."""
        with self._bench.vocab.build_table(self._variant.token_bytes) as table:
            return table.build_ns

    def tokenizer_ns(self) -> int:
        """Build the tokenizer, the token table being there."""
        from llgbench.llama import bridge

        with bridge.build(self._engine, self._bench.vocab, self._variant) as tokenizer:
            return tokenizer.build_ns

    def builds(self, count: int = 3) -> Metrics:
        """Return the times of some builds, nanoseconds, and the table's share of the quickest."""
        built = [float(self.tokenizer_ns()) for _ in range(count)]
        table = min(self.table_ns() for _ in range(count)) / min(built)
        return Metrics(self._name, {"build": samples(built), "table": table})

    def wrong_tokens(self) -> float:
        """Return how many tokens the variant gives llguidance with wrong bytes."""
        from llgbench.measure import runner

        return float(runner.wrong_tokens(self._bench.vocab, self._variant))

    def close(self) -> None:
        """Close what was opened."""
        self._bench.close()
