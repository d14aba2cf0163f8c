"""What memory a pending boundary holds beyond the same matcher without the fallback, by n."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llgbench.engines.engine import Engine
from llgbench.fallback import heap
from llgbench.fallback.states import CHECKPOINT_VOCAB, LENGTHS
from llgbench.inputs import case_file
from llgbench.inputs.variant import Variant, get
from llgbench.llama import bridge
from llgbench.measure.replay import replay
from llgbench.measure.runner import Workbench
from llgbench.measure.trace import trace_of


@dataclass(frozen=True)
class Memory:
    """What a replay of ``a b{n}`` adds to the heap in use, in bytes; the boundary is after ``a``.

    Attributes:
        n: bytes after the boundary.
        off: with the option off: the stack has one entry a byte there too.
        on: with the option on.
    """

    n: int
    off: int
    on: int

    @property
    def beyond(self) -> int:
        """What the fallback adds."""
        return self.on - self.off


def measure(
    engine: Engine, lengths: Sequence[int] = LENGTHS, vocab: str = CHECKPOINT_VOCAB
) -> Iterator[Memory]:
    """Measure by length.

    Raises:
        UnavailableError: the engine has no fallback, or the C library does not say.
    """
    with Workbench(vocab) as bench:
        for n in lengths:
            off = _growth(n, engine, get("greedy_tokenize"), bench)
            yield Memory(n, off, _growth(n, engine, get("greedy_lexeme_fallback"), bench))


def _growth(n: int, engine: Engine, variant: Variant, bench: Workbench) -> int:
    """Return what a replay up to the pending boundary's n-th byte, and its mask, leave in use.

    The lexer's states, some kilobytes for each byte of either terminal, belong to the grammar: both
    texts are replayed before, which builds them all, with the option or without.
    """
    subject = case_file.load(f"checkpoint@{n}")
    traces = {text.name: trace_of(text, bench.vocab) for text in subject.texts}
    tokenizer = bench.tokenizer(engine, variant)
    with tokenizer.matcher(subject.lark(bridge.options(engine, variant))) as matcher:
        for name in ("long-match", "short-match"):
            replay(matcher, traces[name], reset=True)
        matcher.reset()
        # A reset matcher keeps the room that its stack has grown to; a clone begins without.
        with matcher.clone() as clone:
            gc.collect()
            before = heap.in_use()
            replay(clone, traces["cut-short"])
            clone.mask()
            return heap.in_use() - before
