"""Where in text and grammar the costliest steps are, asked of the engine while it is here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from llgbench import isolated
from llgbench.compare.comparison import Comparison
from llgbench.compare.facts import Step
from llgbench.compare.side import Side
from llgbench.engines.engine import Tokenizer, load
from llgbench.errors import LlgbenchError
from llgbench.inputs import case_file
from llgbench.inputs.variant import get
from llgbench.llama import bridge
from llgbench.llama.vocab import Vocab, open_vocab
from llgbench.measure.replay import replay
from llgbench.measure.trace import trace_of

# How much of the text before a step is kept, and of what the grammar expects.
_CHARACTERS = 40
_RANGES = 12


def in_comparison(found: Comparison, say: Callable[[str], None]) -> Comparison:
    """Return a comparison with its costliest steps explained, while the libraries are here."""
    if not found.costliest:
        return found
    try:
        steps = explained(found.costliest, found.base, found.plan.variant)
    except LlgbenchError as error:  # what was measured stays
        say(f"the costliest steps are not explained: {error}")
        return found
    return replace(found, costliest=steps)


def explained(steps: Sequence[Step], side: Side, variant: str) -> tuple[Step, ...]:
    """Return steps with the text before them and what the grammar allows there.

    Asked in a process of its own: an engine runs code as it loads.

    Raises:
        LlgbenchError: an input is not there any more, or the process does not survive.
    """
    return isolated.call(explain, list(steps), side, variant)


def explain(steps: list[Step], side: Side, variant: str) -> tuple[Step, ...]:
    """Do what :func:`explained` says in this process."""
    found = {}
    for name in dict.fromkeys(step.vocab for step in steps):
        with (
            open_vocab(name) as vocab,
            bridge.build(load(side.library), vocab, get(variant)) as tokenizer,
        ):
            for step in steps:
                if step.vocab == name:
                    found[step] = _explain(step, side, vocab, tokenizer)
    return tuple(found[step] for step in steps)


def _explain(step: Step, side: Side, vocab: Vocab, tokenizer: Tokenizer) -> Step:
    loaded = case_file.load(step.case)
    (text,) = (text for text in loaded.texts if text.name == step.text)
    trace = trace_of(text, vocab)
    before = np.ascontiguousarray(trace[: step.step])
    with tokenizer.matcher(loaded.lark(side.options)) as matcher:
        replay(matcher, before)
        allowed = matcher.allowed()
        accepting = matcher.is_accepting()
    pieces = vocab.table("token_to_piece").tokens
    ids = [] if allowed is None else allowed.tolist()
    at_end = step.step >= len(trace)
    return replace(
        step,
        so_far=vocab.spell(before).decode(errors="replace")[-_CHARACTERS:],
        token="" if at_end else pieces[int(trace[step.step])].decode(errors="replace"),
        allowed=len(ids),
        expects=first_bytes({piece[0] for t in ids if (piece := pieces[t])}),
        accepting=accepting,
    )


def first_bytes(found: set[int]) -> str:
    """Return bytes in order, runs of three and more as ``a-z``, those beyond ASCII as one sign."""
    if len(found) > 240:
        return "any byte"
    ascii_only = sorted(byte for byte in found if byte < 0x80)
    runs: list[list[int]] = []
    for byte in ascii_only:
        if runs and byte == runs[-1][-1] + 1:
            runs[-1].append(byte)
        else:
            runs.append([byte])
    parts = [
        f"{_shown(run[0])}-{_shown(run[-1])}" if len(run) > 2 else " ".join(map(_shown, run))
        for run in runs
    ]
    more = ["…"] if len(parts) > _RANGES else []
    beyond = ["non-ASCII"] if any(byte >= 0x80 for byte in found) else []
    return " ".join([*parts[:_RANGES], *more, *beyond])


def _shown(byte: int) -> str:
    names = {0x20: "space", 0x0A: "newline", 0x09: "tab", 0x0D: "return"}
    return names.get(byte) or (chr(byte) if 0x20 < byte < 0x7F else f"\\x{byte:02x}")
