"""What runs under callgrind to count the fallback's instructions: its jobs, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from llgbench.compare.worker import COUNTED_STEPS
from llgbench.engines.engine import Engine, TokenArray
from llgbench.errors import CompareError
from llgbench.fallback.pending import STATES
from llgbench.fallback.states import STRATEGIES, Strategy, checkpoint_trace
from llgbench.inputs import case_file
from llgbench.inputs.grammar import with_options
from llgbench.inputs.variant import REFERENCE_FALLBACK, get
from llgbench.llama import bridge
from llgbench.measure import runner
from llgbench.measure.counter import (
    CONSUME,
    MASK,
    PER_REPLAY,
    PER_STEP,
    Compile,
    Free,
    JobBuilder,
    Mask,
    Recorded,
    Replay,
    Reset,
    SetThreshold,
)
from llgbench.measure.replay import with_end
from llgbench.measure.runner import Workbench

KINDS = ("cold", "warm")
PARTS = {"mask": MASK, "consume": CONSUME}

# A pending mask is counted so often; the first one reads the state's bytes for the first time.
MASKS = 3


def json_job(
    sides: Mapping[str, Engine], option: str, vocab: str, cases: Sequence[str], folder: Path
) -> Recorded:
    """Return the job that counts the longest text of cases, cold and warm, a sum a replay and part.

    The parts are counted in replays of their own, each on a fresh matcher: a count of every call
    costs milliseconds, and sums are all that is asked for.

    Args:
        sides: engines; the one called ``on`` gets the option.
        option: of the grammar.
        vocab: its name.
        cases: their names.
        folder: where the job's files go.

    Raises:
        CompareError: a grammar does not compile.
    """
    builder, plain = JobBuilder(), get("greedy_tokenize")
    with Workbench(vocab) as bench:
        traces = {
            name: max(runner.traces_of(case_file.load(name), bench.vocab), key=len)
            for name in cases
        }
        for side, engine in sides.items():
            tokenizer = builder.tokenizer(engine, bench.vocab, plain)
            ends = bench.tokenizer(engine, plain)
            for name, trace in traces.items():
                grammar = case_file.load(name).lark({option: True} if side == "on" else {})
                tokens = with_end(trace, ends)[:COUNTED_STEPS]
                for part, flag in PARTS.items():
                    cold, warm = (
                        Replay(0, tokens, flag, PER_REPLAY, label(name, side, kind, part))
                        for kind in KINDS
                    )
                    builder.add(Compile(0, tokenizer, grammar), cold, Reset(0), warm, Free(0))
        return builder.record(folder)


def pending_job(engine: Engine, vocab: str, folder: Path) -> Recorded:
    """Return the job that counts the masks of every state by its readings, in turn.

    Nothing is forced, so that every mask is a walk; each state is reached uncounted.
    """
    builder = JobBuilder()
    reached: dict[int, tuple[str, TokenArray]] = {}
    with Workbench(vocab) as bench:
        tokenizer = builder.tokenizer(engine, bench.vocab, REFERENCE_FALLBACK)
        options = bridge.options(engine, REFERENCE_FALLBACK)
        for state in STATES:
            tokens = bench.vocab.trace(state.text)
            for at, (reading, grammar) in enumerate(state.grammars.items()):
                builder.add(Compile(at, tokenizer, with_options(grammar, options)))
                reached[len(builder.steps)] = f"{state.name}, {reading}", tokens
                builder.add(Replay(at, tokens))
            for _ in range(MASKS):
                for at, reading in enumerate(state.grammars):
                    builder.add(Mask(at, label(state.name, reading)))
            builder.add(*(Free(at) for at in range(len(state.grammars))))
        recorded = builder.record(folder)
    for step, (name, tokens) in reached.items():
        if recorded.taken[step] != len(tokens):
            raise CompareError(f"{name}: the grammar refuses its text")
    return recorded


def curve_job(
    wanted: Sequence[tuple[int, Strategy]], engine: Engine, bench: Workbench, folder: Path
) -> Recorded:
    """Return the job that counts each step of checkpoints, after a replay that builds the lexer."""
    builder, variant = JobBuilder(), get("greedy_lexeme_fallback")
    tokenizer = builder.tokenizer(engine, bench.vocab, variant)
    options = bridge.options(engine, variant)
    for n, strategy in wanted:
        subject, tokens = checkpoint_trace(n, engine, bench)
        builder.add(
            Compile(0, tokenizer, subject.lark(options)),
            SetThreshold(0, STRATEGIES[strategy]),
            Replay(0, tokens),
            Reset(0),
            Replay(0, tokens, after=PER_STEP, label=label(f"{n}", strategy)),
            Free(0),
        )
    return builder.record(folder)


def label(name: str, *words: str) -> str:
    """Return the words that name a count."""
    return " ".join((name.replace(" ", ""), *words))
