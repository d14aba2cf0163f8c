from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from conftest import CATALOGUE, ROOT, Lab

from llgbench import bridge, case, checks
from llgbench.case import Case, Outcome, Text
from llgbench.checks import Judgement, Verdict
from llgbench.engine import Engine
from llgbench.errors import GrammarError
from llgbench.replay import End
from llgbench.variant import REFERENCE, get
from llgbench.vocab import Vocab

# Above this a member of a family takes seconds to minutes.
SLOW_OUTCOME = 1024
SLOW_JUDGEMENT = 256

STOCK = ("baseline", "token_to_piece", "greedy_tokenize", "sentinel")


def members(limit: int) -> list[str]:
    return [
        name
        for name in case.names(ROOT)
        if not name.partition("@")[2] or int(name.partition("@")[2]) <= limit
    ]


def made(grammar: str, *texts: Text) -> Case:
    return Case("made", "lark", grammar, ROOT, "made for a test", texts)


def judge(lab: Lab, vocab_name: str, variant: str, subject: Case) -> Verdict:
    vocab = lab.vocab(vocab_name)
    return checks.judge(
        lab.tokenizer(vocab_name, variant), lab.tokenizer(vocab_name, REFERENCE), get(variant),
        subject, subject.lark(), [vocab.trace(text.data) for text in subject.texts], vocab,
    )  # fmt: skip


# ---- section 4.3 ----

DIFFERING = {
    "llama-spm": (16410, 16395),
    "llama-bpe": (117, 117),
    "gemma-4": (88, 88),
    "bert-bge": (5, 5),
    "qwen2": (0, 0),
    "command-r": (0, 0),
    # not in the document, read once
    "aquila": (25, 25),
    "baichuan": (14717, 14717),
    "deepseek-coder": (0, 0),
    "deepseek-llm": (0, 0),
    "falcon": (0, 0),
    "gpt-2": (23, 23),
    "gpt-neox": (29, 29),
    "mpt": (29, 29),
    "nomic-bert-moe": (154629, 154629),
    "phi-3": (16410, 16395),
    "qwen35": (0, 0),
    "refact": (46, 46),
    "starcoder": (46, 46),
}


def test_token_bytes(every_vocab: Vocab) -> None:
    found = checks.token_bytes(every_vocab)
    assert (found.differing, found.lost_space) == DIFFERING[every_vocab.name]
    assert found.tokens == CATALOGUE[every_vocab.name].tokens
    assert found.kind == every_vocab.kind
    assert found.byte_exact == every_vocab.is_byte_exact


def test_the_figures_cover_the_catalogue() -> None:
    assert set(DIFFERING) == set(CATALOGUE)


def test_the_fifteen_that_only_got_shorter(lab: Lab) -> None:
    vocab = lab.vocab("llama-spm")
    pairs = zip(vocab.table("detokenize").tokens, vocab.table("token_to_piece").tokens, strict=True)
    shorter = [(s, p) for s, p in pairs if s != p and s.startswith(b" ")]
    assert len(shorter) == 15
    assert all(p == b" " + s and not p.strip(b" ") for s, p in shorter)


# ---- sections 4.4, 5.1, 7.2 ----

SPACED = {"llama-spm": 6136, "llama-bpe": 6, "gemma-4": 6, "bert-bge": 2}
HELLO = {"h", "he", "hel", "hell", "hello"}


@pytest.mark.parametrize("variant", STOCK)
@pytest.mark.parametrize("vocab_name", ["llama-spm", "llama-bpe", "bert-bge"])
def test_spaces_where_the_grammar_has_none(
    lab: Lab, wheel: Engine, vocab_name: str, variant: str
) -> None:
    vocab, tokenizer = lab.vocab(vocab_name), lab.tokenizer(vocab_name, variant)
    found = checks.probes(vocab, get(variant), tokenizer, wheel)
    assert found.spaced == (SPACED.get(vocab_name, 0) if variant == "baseline" else 0)
    assert found.no_space_allowed > found.spaced
    assert (found.vocab, found.variant) == (vocab_name, variant)
    assert found.greedy == bridge.is_greedy(vocab, get(variant))


@pytest.mark.parametrize("variant", ["baseline", "token_to_piece"])
def test_the_forced_mask_is_wrong_on_llama_spm(lab: Lab, wheel: Engine, variant: str) -> None:
    tokenizer = lab.tokenizer("llama-spm", variant)
    found = checks.probes(lab.vocab("llama-spm"), get(variant), tokenizer, wheel)
    assert found.forced == (22172,)
    assert found.forced_bytes == (" hello",)
    assert not found.forced_right
    assert not found.right


def test_the_forced_mask_without_a_tokenize_fn(lab: Lab, wheel: Engine) -> None:
    tokenizer = lab.tokenizer("llama-spm", "greedy_tokenize")
    found = checks.probes(lab.vocab("llama-spm"), get("greedy_tokenize"), tokenizer, wheel)
    assert len(found.forced) == 6  # "h" twice: a piece and a byte token
    assert set(found.forced_bytes) == HELLO
    assert found.forced_right
    assert found.right
    assert found.greedy


def test_the_sentinel_forces_rightly_on_llama_spm(lab: Lab, wheel: Engine) -> None:
    tokenizer = lab.tokenizer("llama-spm", "sentinel")
    found = checks.probes(lab.vocab("llama-spm"), get("sentinel"), tokenizer, wheel)
    assert len(found.forced) == 1
    assert found.right
    assert not found.greedy


@pytest.mark.parametrize("variant", STOCK)
def test_the_forced_mask_on_llama_bpe(lab: Lab, wheel: Engine, variant: str) -> None:
    tokenizer = lab.tokenizer("llama-bpe", variant)
    found = checks.probes(lab.vocab("llama-bpe"), get(variant), tokenizer, wheel)
    assert found.forced == (15339,)
    assert found.forced_bytes == ("hello",)
    assert found.forced_right
    assert found.right == (variant != "baseline")


def test_exact_bytes_are_right_on_every_vocab(every_vocab: Vocab, wheel: Engine) -> None:
    # On a byte-exact tokenizer the other variants are built in the very same way; a vocabulary of
    # 250,000 tokens takes seconds a tokenizer.
    one = every_vocab.is_byte_exact or every_vocab.n_tokens > 100_000
    names = ["greedy_tokenize"] if one else STOCK[1:]
    for name in names:
        with bridge.build(wheel, every_vocab, get(name)) as tokenizer:
            found = checks.probes(every_vocab, get(name), tokenizer, wheel)
        assert found.spaced == 0
        assert found.right == (found.greedy or name != "token_to_piece" or found.forced_right)
        assert found.forced_right or name == "token_to_piece"


def test_baseline_on_every_other_vocab(every_vocab: Vocab, wheel: Engine) -> None:
    """0 where no token has wrong bytes."""
    with bridge.build(wheel, every_vocab, get("baseline")) as tokenizer:
        found = checks.probes(every_vocab, get("baseline"), tokenizer, wheel)
    if every_vocab.name in SPACED:
        assert found.spaced == SPACED[every_vocab.name]
    elif DIFFERING[every_vocab.name] == (0, 0):
        assert found.spaced == 0
    else:
        assert found.spaced > 0


# ---- outcomes ----


@pytest.mark.parametrize("name", members(SLOW_OUTCOME))
def test_stock_does_what_every_case_records(wheel: Engine, name: str) -> None:
    subject = case.load(name, ROOT)
    for text in subject.texts:
        assert checks.outcome(wheel, subject, text, REFERENCE) == text.stock, text.name


@pytest.mark.parametrize("name", ["listed", "soname", "fstring-greedy", "ipv6-host-port"])
def test_other_releases_do_the_same(release: Engine, name: str) -> None:
    subject = case.load(name, ROOT)
    for text in subject.texts:
        assert checks.outcome(release, subject, text, REFERENCE) == text.stock, text.name


def test_an_outcome_of_nothing(wheel: Engine) -> None:
    assert checks.outcome(wheel, made('start: "a"'), Text("", b""), REFERENCE) == Outcome(0)
    assert checks.outcome(wheel, made('start: "a"?'), Text("", b""), REFERENCE) == Outcome()
    with pytest.raises(GrammarError):
        checks.outcome(wheel, made("start: ("), Text("", b""), REFERENCE)


# ---- the judgement ----


@pytest.mark.parametrize("name", members(SLOW_JUDGEMENT))
def test_the_judgement_names_the_rejected_byte(lab: Lab, name: str) -> None:
    """Token by token on llama-bpe, the same byte as byte by byte."""
    subject = case.load(name, ROOT)
    verdict = judge(lab, "llama-bpe", "token_to_piece", subject)
    for text, judgement in zip(subject.texts, verdict.judgements, strict=True):
        assert text.stock is not None
        assert judgement.reject_at == text.stock.reject_at, text.name
        assert judgement.accepted == judgement.reference_accepted == text.stock.accepted
        assert judgement.forbidden == judgement.missing == 0
    rescued = any(
        text.fallback is not None and text.fallback.accepted and not j.accepted
        for text, j in zip(subject.texts, verdict.judgements, strict=True)
    )
    assert verdict.label == ("limited" if rescued else "right")


ENDINGS = {
    'start: "ab"': (b"ab", b"a", b"abc", b"ab and more", b"ax"),
    'start: "hello world"': (b"hello world", b"hello", b"hello there", b"hello world again"),
    "start: /[a-z]*/": (b"hello", b"hello world", b"a world b", b"", b"9"),
    "start: /[a-z ]{5}/": (b"he wo", b"hello world", b"a"),
    'start: /[a-z]+/ "!"?': (b"hello!", b"hello ! x", b"hello!!"),
}


@pytest.mark.parametrize("grammar", ENDINGS)
@pytest.mark.parametrize("vocab_name", ["llama-spm", "llama-bpe"])
@pytest.mark.parametrize("variant", ["greedy_tokenize", "sentinel"])
def test_however_a_text_ends(
    lab: Lab, wheel: Engine, grammar: str, vocab_name: str, variant: str
) -> None:
    """Rejected, at the end of input, or after the grammar itself has come to its end."""
    subject = made(grammar, *(Text(str(data), data) for data in ENDINGS[grammar]))
    verdict = judge(lab, vocab_name, variant, subject)
    for text, judgement in zip(subject.texts, verdict.judgements, strict=True):
        wanted = checks.outcome(wheel, subject, text, REFERENCE)
        assert judgement.reject_at == wanted.reject_at, text.name
        assert judgement.accepted == judgement.reference_accepted == wanted.accepted


def test_baseline_accepts_what_it_should_not(lab: Lab) -> None:
    """It takes " world" for "world": the reference ends there, and baseline goes on alone."""
    grammar = "start: /[a-z]*/"
    (judgement,) = judge(
        lab, "llama-spm", "baseline", made(grammar, Text("t", b"hello world"))
    ).judgements
    assert judgement.accepted
    assert judgement.reject_at is None
    assert not judgement.reference_accepted
    assert judgement.forbidden > 0


def test_baseline_goes_on_to_its_own_end(lab: Lab) -> None:
    """One side past the other's end is judged by what it does itself, not by where it stood."""
    grammar = 'start: /[a-z]+/ "!"?'
    (judgement,) = judge(
        lab, "llama-bpe", "baseline", made(grammar, Text("t", b"hello ! x"))
    ).judgements
    assert not judgement.accepted
    assert judgement.end is End.STOPPED
    assert judgement.reject_at == len(b"hello !")


def test_baseline_rejects_what_it_should_not(lab: Lab) -> None:
    subject = made('start: "hello world"', Text("t", b"hello world", Outcome(), Outcome()))
    verdict = judge(lab, "llama-spm", "baseline", subject)
    (judgement,) = verdict.judgements
    assert (judgement.accepted, judgement.reference_accepted) == (False, True)
    assert judgement.reject_at == 5
    assert verdict.label == "wrong"


def recount(lab: Lab, vocab_name: str, variant: str, grammar: str, trace: object) -> list[int]:
    """Count forbidden, missing and narrowed from Matcher.mask() alone."""
    forbidden = missing = narrowed = 0
    assert isinstance(trace, np.ndarray)
    tokens: npt.NDArray[np.uint32] = trace
    with (
        lab.tokenizer(vocab_name, variant).matcher(grammar) as a,
        lab.tokenizer(vocab_name, REFERENCE).matcher(grammar) as b,
    ):
        for token in [*tokens.tolist(), None]:
            if a.is_stopped() or b.is_stopped():
                break
            ours, theirs = a.allowed(), b.allowed()
            if ours is None or theirs is None:
                break
            one, other = set(ours.tolist()), set(theirs.tolist())
            if len(one) == 1 and one < other:
                narrowed += 1
            else:
                forbidden += len(one - other)
                missing += len(other - one)
            if token is None or a.validate([token]) != 1 or b.validate([token]) != 1:
                break
            a.consume(token)
            b.consume(token)
    return [forbidden, missing, narrowed]


@pytest.mark.parametrize("vocab_name", ["llama-spm", "llama-bpe"])
@pytest.mark.parametrize("variant", STOCK)
def test_forbidden_and_missing_counted_again(lab: Lab, vocab_name: str, variant: str) -> None:
    subject = case.load("json-enum", ROOT)
    verdict = judge(lab, vocab_name, variant, subject)
    for text, judgement in zip(subject.texts, verdict.judgements, strict=True):
        trace = lab.vocab(vocab_name).trace(text.data)
        counted = recount(lab, vocab_name, variant, subject.lark(), trace)
        found = [judgement.forbidden, judgement.missing, judgement.narrowed_steps]
        assert found == counted, text.name


# ---- the verdict ----

VERDICTS = [
    ("json-enum", "llama-spm", "baseline", "wrong", "forbidden tokens"),
    ("json-enum", "llama-spm", "token_to_piece", "wrong", "the grammar is dropped"),
    ("json-enum", "llama-spm", "greedy_tokenize", "right", ""),
    ("json-enum", "llama-spm", "sentinel", "right", ""),
    ("json-enum", "llama-bpe", "token_to_piece", "right", ""),
    ("json-enum", "llama-bpe", "greedy_tokenize", "right", ""),
    ("forced-literal", "llama-spm", "baseline", "wrong", "forbidden tokens"),
    ("forced-literal", "llama-bpe", "greedy_tokenize", "right", ""),
    ("listed", "llama-bpe", "baseline", "limited", "rejects 'listed' at byte 5, as recorded"),
    ("listed", "llama-spm", "greedy_tokenize", "limited", "at byte 5, as recorded"),
    ("listed-repaired", "llama-bpe", "greedy_tokenize", "right", ""),
]


@pytest.mark.parametrize(("name", "vocab_name", "variant", "label", "why"), VERDICTS)
def test_verdicts(lab: Lab, name: str, vocab_name: str, variant: str, label: str, why: str) -> None:
    verdict = judge(lab, vocab_name, variant, case.load(name, ROOT))
    assert verdict.label == label, verdict.reason
    assert why in verdict.reason
    assert bool(verdict.reason) == (label != "right")
    assert "\n" not in str(verdict)
    assert str(verdict).startswith(label)


def test_an_engine_that_does_not_do_as_recorded_is_wrong(lab: Lab) -> None:
    good, bad = Text("good", b"ab", Outcome(1)), Text("bad", b"ax", Outcome(), Outcome())
    for text, why in ((good, "accepts 'good', recorded as"), (bad, "recorded as accepted")):
        verdict = judge(lab, "llama-bpe", "greedy_tokenize", made('start: "ab"', text))
        assert verdict.label == "wrong"
        assert why in verdict.reason


def test_an_invalid_text_that_is_accepted_is_wrong(lab: Lab) -> None:
    """As a MaskBench test has it: no outcome recorded means that the schema refuses it."""
    subject = made('start: "ab"', Text("invalid-0", b"ab"))
    verdict = judge(lab, "llama-bpe", "greedy_tokenize", subject)
    assert verdict.label == "wrong"
    assert "accepts the invalid text" in verdict.reason


def test_a_verdict_as_plain_data(lab: Lab) -> None:
    import json

    verdict = judge(lab, "llama-bpe", "greedy_tokenize", case.load("listed", ROOT))
    table = json.loads(json.dumps(verdict.to_json()))
    assert table["label"] == "limited"
    assert table["accepted"] == verdict.accepted == sum(t["accepted"] for t in table["texts"])
    assert table["forbidden"] == verdict.forbidden == 0
    assert table["missing"] == verdict.missing == 0
    assert [t["text"] for t in table["texts"]] == [j.text for j in verdict.judgements]
    assert {t["end"] for t in table["texts"]} <= {end.name.lower() for end in End}
    assert verdict.inside_ns == sum(j.inside_ns for j in verdict.judgements) > 0
    assert set(table["texts"][0]) == set(Judgement.__dataclass_fields__)
