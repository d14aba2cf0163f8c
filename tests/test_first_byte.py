"""The engine first-byte: in every state the masks of stock, for no more work."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from fallback_engine import GENERATED, allowed, built
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Grammar
from test_fallback import FEATURES, SHORT, feature_tokenizer, step_stats
from test_fallback_reference import grammars, small_vocabulary

from llgbench import isolated
from llgbench.compare import mask_counting, sides
from llgbench.compare.mask_counting import Prepared
from llgbench.engines.engine import Engine, Matcher, Tokenizer
from llgbench.engines.spec import FIRST_BYTE, STOCK


@pytest.fixture(scope="session")
def engines() -> tuple[Engine, Engine]:
    """Stock, and the engine that is tested."""
    return built(STOCK), built(FIRST_BYTE)


def said(m: Matcher) -> str:
    """Return a matcher's error without the work that follows it."""
    return (m.error() or "").partition("\n")[0]


def work(m: Matcher) -> dict[str, int]:
    names = ("trie_nodes_walked", "lexer_cost", "all_items", "rows", "cached_rows", "slices")
    return dict(zip(names, step_stats(m), strict=True))


def equal_here(stock: Matcher, first: Matcher) -> list[int]:
    """Compare all that can be asked of a state; return what its mask allows."""
    assert said(stock) == said(first)
    assert stock.is_stopped() == first.is_stopped()
    if stock.is_stopped():
        return []
    assert stock.is_accepting() == first.is_accepting()
    mask = allowed(stock)
    assert mask == allowed(first)
    theirs, ours = work(stock), work(first)
    # The same nodes of the trie, the same slices; what is not asked for is not paid.
    assert ours["trie_nodes_walked"] == theirs["trie_nodes_walked"]
    assert ours["slices"] == theirs["slices"]
    assert ours["all_items"] <= theirs["all_items"]
    assert ours["rows"] <= theirs["rows"]
    return mask


def walk(pair: tuple[Tokenizer, Tokenizer], grammar: str, rng: Random, steps: int) -> int:
    """Walk at random through a grammar and back; return how many states were compared."""
    stock, first = (tokenizer.matcher(grammar) for tokenizer in pair)
    depth = 0
    for done in range(steps):
        mask = equal_here(stock, first)
        probe = rng.choices(range(pair[0].n_tokens), k=3) if not stock.is_stopped() else []
        if probe:
            assert stock.validate(probe) == first.validate(probe)
        if depth and (not mask or rng.random() < 0.2):
            back = rng.randint(1, depth)
            assert stock.rollback(back)
            assert first.rollback(back)
            depth -= back
            continue
        if not mask:
            return done + 1
        token = rng.choice(mask)
        assert stock.consume(token) == first.consume(token)
        depth += 1
    return steps


def test_as_stock_on_generated_grammars(engines: tuple[Engine, Engine]) -> None:
    (stock, _), (first, _) = map(small_vocabulary, engines)
    compared = 0

    @settings(GENERATED, max_examples=200)
    @given(grammars(), st.integers(0, 2**32))
    def run(grammar: Grammar, seed: int) -> None:
        nonlocal compared
        compared += walk((stock, first), grammar.to_lark(), Random(seed), 30)

    run()
    assert compared > 2000


@pytest.mark.parametrize("name", FEATURES)
def test_as_stock_on_each_feature(engines: tuple[Engine, Engine], name: str) -> None:
    """Stops and special tokens end lexemes in other ways, and ignored text stands between them."""
    grammar, text = FEATURES[name]
    stock, first = (
        feature_tokenizer(engine).matcher(f"{grammar}HEAD: /{SHORT}/\n") for engine in engines
    )
    for char in f"x{text}":
        equal_here(stock, first)
        for byte in range(255):
            assert stock.validate([byte]) == first.validate([byte])
        token = 300 + ord(char) if ord(char) < 2 else ord(char)
        assert stock.consume(token) == first.consume(token) is True
    equal_here(stock, first)


def test_a_forbidden_byte_is_refused_the_same(engines: tuple[Engine, Engine]) -> None:
    """Committed, a byte that begins a slice alone is what stock's parser refuses."""
    words = []
    for engine in engines:
        m = feature_tokenizer(engine).matcher('start: N ","\nN: /[0-9]+/\n')
        assert m.consume(ord("1"))
        assert not m.consume(ord("x"))
        words.append(said(m))
    assert words[0] == words[1] != ""


def test_the_parser_is_not_asked_in_vain(engines: tuple[Engine, Engine]) -> None:
    """After a digit all that stands in slices is refused by the lexer: stock tries each."""
    grammar = 'start: N ";"\nN: /[0-9]+/\n'
    counts = []
    for engine in engines:
        m = feature_tokenizer(engine).matcher(grammar)
        assert m.consume(ord("1"))
        assert bytes(t for t in allowed(m) if t < 256) == b"0123456789;"
        counts.append(work(m))
    stock, first = counts
    assert first["all_items"] <= stock["all_items"]
    # Rows that a try reads are cached, so that their number is that of tries.
    assert first["cached_rows"] < stock["cached_rows"]


def verified(vocab: str, cases: tuple[str, ...], folder: Path, maskbench: str | None = None,
             first: int = 0) -> Prepared:  # fmt: skip
    """Compare the masks of every text of cases, in a process of its own."""
    base, head = (sides.resolve(str(built(f).path), lambda _: None) for f in (STOCK, FIRST_BYTE))
    job = mask_counting.Job(
        base=base, head=head, vocab=vocab, variant="greedy_tokenize", cases=cases,
        maskbench=maskbench, first=first, folder=str(folder),
    )  # fmt: skip
    return isolated.call(mask_counting.prepare, job)


CASES = ("json-tool-call", "json-nested", "json-enum", "listed", "fstring-greedy", "lazy-stop")


@pytest.mark.usefixtures("_vocabs_here")
@pytest.mark.parametrize("vocab", ["llama-spm", "gpt-2"])
def test_as_stock_on_real_vocabularies(vocab: str, tmp_path: Path) -> None:
    found = verified(vocab, CASES, tmp_path)
    assert found.differences == ()
    assert found.refused.keys() <= {"lazy-stop", "fstring-greedy", "listed"}, found.refused
    assert found.verified > 300


@pytest.mark.usefixtures("_vocabs_here")
def test_as_stock_on_published_schemas(maskbench: Path, tmp_path: Path) -> None:
    found = verified("gpt-2", (), tmp_path, str(maskbench), first=60)
    assert found.differences == ()
    assert len(found.counted) + len(found.refused) == 20
    assert len(found.counted) > 10
