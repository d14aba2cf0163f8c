"""``llgbench verify``: whether each variant lets the right text come out of the whole loop.

A synthetic model draws at random, so only the grammar can make its text right: a forced literal,
a JSON enumeration, and a forced skeleton around a free region.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from llgbench import isolated
from llgbench.decode import loop as decode
from llgbench.decode import measurement
from llgbench.decode.plan import Plan
from llgbench.engines.engine import INVALID_TOKEN
from llgbench.errors import (
    GrammarError,
    ModelError,
    ProcessError,
    UnavailableError,
    VocabError,
)
from llgbench.inputs import case_file, gguf_faults
from llgbench.inputs.case import Case
from llgbench.inputs.catalogue import vocab_path
from llgbench.inputs.configuration import Configuration
from llgbench.inputs.variant import DEFAULT_VARIANTS, get
from llgbench.llama import bridge
from llgbench.llama.model import Context, Model
from llgbench.llama.synthetic import synthesize
from llgbench.llama.vocab import Vocab
from llgbench.measure.runner import Workbench, engine_for
from llgbench.measure.trace import trace_of

CASES = ("forced-literal", "json-enum", "forced-skeleton")
# One vocabulary of each kind that the catalogue has, and the largest.
VOCABS = ("llama-spm", "llama-bpe", "gemma-4", "bert-bge", "nomic-bert-moe")


@dataclass(frozen=True)
class Verification:
    """One vocab and variant over the three cases.

    Attributes:
        vocab: its name.
        kind: llama.cpp's vocabulary type.
        variant: its name.
        passed: cases whose text came out complete and right.
        cases: how many there were.
        errors: tokens or masks at which llguidance failed.
        dropped: cases in which the grammar was dropped.
        greedy: whether llguidance has no tokenize_fn and tokenizes greedily; None: did not run.
        outcomes: what became of each case, by name.
        texts: what came out before the end token, by name of the case.
        unavailable: why nothing ran; None where it did.
    """

    vocab: str
    kind: str
    variant: str
    passed: int = 0
    cases: int = len(CASES)
    errors: int = 0
    dropped: int = 0
    greedy: bool | None = None
    outcomes: dict[str, str] | None = None
    texts: dict[str, str] | None = None
    unavailable: str | None = None

    @property
    def right(self) -> bool:
        """Whether every case passed and llguidance never failed."""
        return self.passed == self.cases and self.errors == 0

    @property
    def expected(self) -> bool:
        """Whether the variant does what it promises.

        A variant that leaves llguidance without an inexact tokenize_fn must be right; the others
        are what they are on a vocabulary whose tokenizer adds to the bytes.
        """
        return self.unavailable is not None or self.right or get(self.variant).tokenize == "always"


def verify(
    vocabs: Sequence[str] = VOCABS,
    variants: Sequence[str] = DEFAULT_VARIANTS,
    *,
    shape: str = "nano",
    seed: int = 0,
    max_tokens: int = 256,
    doing: Callable[[str], None] = lambda _: None,
) -> Iterator[Verification]:
    """Verify every variant on every vocab.

    Args:
        vocabs: by name.
        variants: by name.
        shape: of the synthetic models.
        seed: of the draws.
        max_tokens: where a text that does not end is cut off.
        doing: called with a line before each vocab.

    Raises:
        UnknownNameError: of a vocab or variant.
    """
    chosen = tuple(get(name).name for name in variants)
    for name in vocabs:
        doing(f"verifying {name}")
        yield from _apart(name, chosen, Plan(
            selection="dist", free=True, max_tokens=max_tokens, seed=seed,
        ), shape)  # fmt: skip


def _apart(name: str, variants: tuple[str, ...], plan: Plan, shape: str) -> list[Verification]:
    """Verify variants on a vocab in a worker, each in its own where one does not survive that."""
    try:
        return isolated.call(verify_vocab, name, variants, plan, shape)
    except (ProcessError, VocabError, ModelError) as error:
        if len(variants) > 1 and isinstance(error, ProcessError):
            return [one for v in variants for one in _apart(name, (v,), plan, shape)]
        known = gguf_faults.diagnose(vocab_path(name)) if isinstance(error, ProcessError) else None
        why = f"llama.cpp: {known}" if known else str(error)
        return [Verification(name, "", v, unavailable=why) for v in variants]


def verify_vocab(
    name: str, variants: tuple[str, ...], plan: Plan, shape: str
) -> list[Verification]:
    """Verify variants on one vocab, in this process.

    Raises:
        UnknownNameError: there is no such vocab.
        VocabError, ModelError: llama.cpp cannot use it.
    """
    try:
        bench = Workbench(name)
    except UnavailableError as error:
        return [Verification(name, "", v, unavailable=str(error)) for v in variants]
    # One thread: nano gains little from more, and loses much where the cores are shared.
    with (
        bench,
        Model(synthesize(shape, bench.vocab), "cpu", shape) as model,
        Context(model, plan.max_tokens + 1, threads=1) as context,
    ):
        found = []
        for variant in variants:
            try:
                found.append(_verify(bench, context, variant, plan))
            except (UnavailableError, GrammarError) as error:
                found.append(Verification(name, bench.vocab.kind, variant, unavailable=str(error)))
        return found


def _tight(subject: Case) -> Case:
    """Return a schema's case with white space as llguidance writes it, not as JSON allows it.

    JSON allows white space without end, and a model that draws at random stays in it.
    """
    if subject.kind != "json_schema":
        return subject
    schema = {**json.loads(subject.source), "x-guidance": {"whitespace_flexible": False}}
    return replace(subject, source=json.dumps(schema))


def _require_spelling(subject: Case, vocab: Vocab) -> None:
    """Refuse a case of which the vocab cannot spell one accepted text.

    Raises:
        UnavailableError: the vocab's reason for the last of them.
    """
    reason = UnavailableError(f"{subject.name} has no accepted text")
    for text in measurement.decodable(subject):
        try:
            trace_of(text, vocab)
            return
        except UnavailableError as error:
            reason = error
    raise reason


def _verify(bench: Workbench, context: Context, name: str, plan: Plan) -> Verification:
    variant, vocab = get(name), bench.vocab
    if vocab.eos == INVALID_TOKEN:
        raise UnavailableError(f"vocab {vocab.name} has no end token, so no text of it ends")
    engine = engine_for(Configuration("", vocab.name, name))
    tokenizer = bench.tokenizer(engine, variant)
    outcomes, texts, errors, dropped = {}, {}, 0, 0
    for case_name in CASES:
        subject = _tight(case_file.load(case_name))
        _require_spelling(subject, vocab)
        grammar = subject.lark(bridge.options(engine, variant))
        done = decode.run(context, tokenizer, grammar, None, plan)
        tokens = done.committed[0]
        found = decode.check(engine, vocab, subject, variant, tokens, vocab.eos)
        if done.error:
            found = f"{found}; {done.error}"
        outcomes[case_name] = found
        written = tokens[:-1] if len(tokens) and int(tokens[-1]) == vocab.eos else tokens
        texts[case_name] = vocab.spell(written).decode(errors="replace")
        # A mask may fail without a token before it that failed.
        errors += max(done.errors, done.drops)
        dropped += done.drops
    return Verification(
        vocab.name, vocab.kind, name,
        passed=sum(found == "complete" for found in outcomes.values()),
        errors=errors, dropped=dropped, greedy=not tokenizer.forces,
        outcomes=outcomes, texts=texts,
    )  # fmt: skip
