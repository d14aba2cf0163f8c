from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import faulty_engine
import numpy as np
import numpy.typing as npt
import pytest
from conftest import CATALOGUE, ROOT, Lab

from llgbench.engines.engine import Engine, byte_tokenizer, load
from llgbench.errors import EngineError, GrammarError
from llgbench.inputs import case_file
from llgbench.inputs.case import REJECTED, Case, Outcome, Text
from llgbench.inputs.variant import REFERENCE, get
from llgbench.llama import bridge
from llgbench.llama.vocab import Vocab
from llgbench.measure import checks, outcomes, probes
from llgbench.measure.checks import Judgement, Verdict
from llgbench.measure.replay import End
from llgbench.measure.trace import trace_of

# Above this a member of a family takes seconds to minutes.
SLOW_OUTCOME = 1024
SLOW_JUDGEMENT = 256

STOCK = ("baseline", "token_to_piece", "greedy_tokenize", "sentinel")


def members(limit: int) -> list[str]:
    return [
        name
        for name in case_file.names(ROOT)
        if not name.partition("@")[2] or int(name.partition("@")[2]) <= limit
    ]


def made(grammar: str, *texts: Text) -> Case:
    return Case("made", "lark", grammar, ROOT, "made for a test", texts)


def judge(lab: Lab, vocab_name: str, variant: str, subject: Case) -> Verdict:
    vocab = lab.vocab(vocab_name)
    return checks.judge(
        lab.tokenizer(vocab_name, variant), lab.tokenizer(vocab_name, REFERENCE), get(variant),
        subject, subject.lark(), [trace_of(text, vocab) for text in subject.texts], vocab,
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
    found = probes.token_bytes(every_vocab)
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
    found = probes.probes(vocab, get(variant), tokenizer, wheel)
    assert found.spaced == (SPACED.get(vocab_name, 0) if variant == "baseline" else 0)
    assert found.no_space_allowed > found.spaced
    assert (found.vocab, found.variant) == (vocab_name, variant)
    assert found.greedy == bridge.is_greedy(vocab, get(variant))


@pytest.mark.parametrize("variant", ["baseline", "token_to_piece"])
def test_the_forced_mask_is_wrong_on_llama_spm(lab: Lab, wheel: Engine, variant: str) -> None:
    tokenizer = lab.tokenizer("llama-spm", variant)
    found = probes.probes(lab.vocab("llama-spm"), get(variant), tokenizer, wheel)
    assert found.forced == (22172,)
    assert found.forced_bytes == (" hello",)
    assert not found.forced_right
    assert not found.right


def test_the_forced_mask_without_a_tokenize_fn(lab: Lab, wheel: Engine) -> None:
    tokenizer = lab.tokenizer("llama-spm", "greedy_tokenize")
    found = probes.probes(lab.vocab("llama-spm"), get("greedy_tokenize"), tokenizer, wheel)
    assert len(found.forced) == 6  # "h" twice: a piece and a byte token
    assert set(found.forced_bytes) == HELLO
    assert found.forced_right
    assert found.right
    assert found.greedy
    assert (found.literal, found.literal_tokens) == ("<unk>", ())


def test_the_sentinel_forces_rightly_on_llama_spm(lab: Lab, wheel: Engine) -> None:
    tokenizer = lab.tokenizer("llama-spm", "sentinel")
    found = probes.probes(lab.vocab("llama-spm"), get("sentinel"), tokenizer, wheel)
    assert len(found.forced) == 1
    assert found.right
    assert not found.greedy


@pytest.mark.parametrize("variant", STOCK)
def test_the_forced_mask_on_llama_bpe(lab: Lab, wheel: Engine, variant: str) -> None:
    tokenizer = lab.tokenizer("llama-bpe", variant)
    found = probes.probes(lab.vocab("llama-bpe"), get(variant), tokenizer, wheel)
    # What llguidance forces is tokenized as llama.cpp does, where a special token's name is the
    # token: the literal can then be written in no other way.
    assert found.literal == "<|begin_of_text|>"
    assert found.literal_tokens == (128000,)
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
            found = probes.probes(every_vocab, get(name), tokenizer, wheel)
        assert found.spaced == 0
        assert found.right == (found.greedy or name != "token_to_piece" or found.forced_right)
        assert found.forced_right or name == "token_to_piece"
        assert not (found.greedy and found.literal_tokens)


def test_baseline_on_every_other_vocab(every_vocab: Vocab, wheel: Engine) -> None:
    """0 where no token has wrong bytes."""
    with bridge.build(wheel, every_vocab, get("baseline")) as tokenizer:
        found = probes.probes(every_vocab, get("baseline"), tokenizer, wheel)
    if every_vocab.name in SPACED:
        assert found.spaced == SPACED[every_vocab.name]
    elif DIFFERING[every_vocab.name] == (0, 0):
        assert found.spaced == 0
    else:
        assert found.spaced > 0


# ---- outcomes ----


@pytest.mark.parametrize("name", members(SLOW_OUTCOME))
def test_stock_does_what_every_case_records(wheel: Engine, name: str) -> None:
    subject = case_file.load(name, ROOT)
    for text in subject.texts:
        assert outcomes.outcome(wheel, subject, text, REFERENCE) == text.stock, text.name


@pytest.mark.parametrize("name", ["listed", "soname", "fstring-greedy", "ipv6-host-port"])
def test_other_releases_do_the_same(release: Engine, name: str) -> None:
    subject = case_file.load(name, ROOT)
    for text in subject.texts:
        assert outcomes.outcome(release, subject, text, REFERENCE) == text.stock, text.name


def test_an_outcome_of_nothing(wheel: Engine) -> None:
    assert outcomes.outcome(wheel, made('start: "a"'), Text("", b""), REFERENCE) == Outcome(0)
    assert outcomes.outcome(wheel, made('start: "a"?'), Text("", b""), REFERENCE) == Outcome()
    with pytest.raises(GrammarError):
        outcomes.outcome(wheel, made("start: ("), Text("", b""), REFERENCE)


# ---- the judgement ----


@pytest.mark.parametrize("name", members(SLOW_JUDGEMENT))
def test_the_judgement_names_the_rejected_byte(lab: Lab, name: str) -> None:
    """Token by token on llama-bpe, the same byte as byte by byte."""
    subject = case_file.load(name, ROOT)
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
        wanted = outcomes.outcome(wheel, subject, text, REFERENCE)
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
    subject = case_file.load("json-enum", ROOT)
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
    verdict = judge(lab, vocab_name, variant, case_file.load(name, ROOT))
    assert verdict.label == label, verdict.reason
    assert why in verdict.reason
    assert bool(verdict.reason) == (label != "right")
    assert "\n" not in str(verdict)
    assert str(verdict).startswith(label)


UNLIKE = [
    (Text("good", b"ab", Outcome(1)), "accepts 'good', recorded as rejected at byte 1"),
    (Text("bad", b"ax", Outcome(), Outcome()), "rejects 'bad' at byte 1, recorded as accepted"),
    (Text("off", b"ax", Outcome(0)), "rejects 'off' at byte 1, recorded as rejected at byte 0"),
    (Text("fallback", b"ax", Outcome(0), Outcome()), "at byte 1, recorded as rejected at byte 0"),
    (Text("any", b"ab", REJECTED), "accepts the invalid text 'any'"),
]


def test_an_engine_that_does_not_do_as_recorded_is_wrong(lab: Lab, wheel: Engine) -> None:
    for text, why in UNLIKE:
        # By tokens, as `run` does, and by bytes, as `check` does: one function judges both.
        found = outcomes.outcome(wheel, made('start: "ab"', text), text, REFERENCE)
        assert why in (outcomes.unlike_recorded(text, found, REFERENCE) or "")
        verdict = judge(lab, "llama-bpe", "greedy_tokenize", made('start: "ab"', text))
        assert verdict.label == "wrong"
        assert why in verdict.reason


@pytest.mark.parametrize("variant", STOCK)
def test_a_text_of_which_nothing_is_recorded(lab: Lab, variant: str) -> None:
    """Reference and variant agree: the bridge is not at fault, and neither is anything wrong."""
    subject = made('start: "on" | "off"', Text("a/ok.txt", b"on"), Text("b/ok.txt", b"offf"))
    verdict = judge(lab, "llama-bpe", variant, subject)
    assert str(verdict) == "refused: text not in the grammar (byte 3): 'b/ok.txt'"
    assert verdict.accepted == 1
    verdict = judge(lab, "llama-bpe", variant, made('start: "on"', Text("ok", b"on")))
    assert str(verdict) == "right"


def test_nothing_judged_is_not_right(lab: Lab) -> None:
    verdict = judge(lab, "llama-bpe", "greedy_tokenize", made('start: "on"'))
    assert str(verdict) == "not judged: it has no texts"
    empty = judge(lab, "llama-bpe", "greedy_tokenize", made('start: "on"?', Text("empty", b"")))
    assert str(empty) == "right"  # the mask before the end was judged
    assert empty.judgements[0].steps == 1


def test_the_offset_on_a_vocabulary_without_single_bytes(lab: Lab, wheel: Engine) -> None:
    """bert-bge has " !" and no " ": its tokens cannot say that the space is taken."""
    text = Text("t", b"a !", Outcome(2))
    subject = made('start: "a" " " "x"', text)
    assert lab.vocab("bert-bge").byte_token(ord(" ")) is None
    assert outcomes.outcome(wheel, subject, text, REFERENCE) == Outcome(2)
    verdict = judge(lab, "bert-bge", "greedy_tokenize", subject)
    assert (str(verdict), verdict.judgements[0].outcome) == ("right", Outcome(2))


# ---- special tokens ----

TOOL = 'start: <|start_header_id|> "tool" <|end_header_id|> /[0-9]+/'
HEADERS = ("<|start_header_id|>", "<|end_header_id|>")


@pytest.mark.parametrize("names", [HEADERS, None])
def test_a_text_with_special_tokens(lab: Lab, wheel: Engine, names: tuple[str, ...] | None) -> None:
    data = b"<|start_header_id|>tool<|end_header_id|>42"
    vocab = lab.vocab("llama-bpe")
    good = Text("good", data, Outcome(), special_tokens=names)
    bad = Text("bad", data + b"x", Outcome(len(data)), special_tokens=names)
    wrong = Text("wrong", data.replace(b"tool", b"fool"), Outcome(19), special_tokens=names)
    plain = Text("plain", data, Outcome(0))
    subject = made(TOOL, good, bad, wrong, plain)
    trace = trace_of(good, vocab).tolist()
    assert (trace[0], trace[2]) == (128006, 128007)
    for variant in STOCK:
        verdict = judge(lab, "llama-bpe", variant, subject)
        assert str(verdict) == "right", variant
        assert [j.reject_at for j in verdict.judgements] == [None, len(data), 19, 0]
    if names is not None:
        for text in subject.texts:
            assert outcomes.outcome(wheel, subject, text, REFERENCE) == text.stock, text.name


def test_a_special_token_that_the_grammar_has_not(lab: Lab) -> None:
    text = Text("t", b"ab<|start_header_id|>", Outcome(2), special_tokens=HEADERS[:1])
    verdict = judge(lab, "llama-bpe", "greedy_tokenize", made('start: "ab" "c"?', text))
    assert str(verdict) == "right"
    hinted = judge(lab, "llama-bpe", "greedy_tokenize", made(TOOL, Text("t", HEADERS[0].encode())))
    assert "--special-tokens reads it as the token" in hinted.reason


# ---- engines that lie ----

ZEROS = "static uint32_t z[10000]; memset(z, 0, sizeof z);"
LIES = {
    "masks of nothing": ("matcher_get_mask", f"{ZEROS} return z;", "the mask forbids token"),
    "masks of everything": (
        "matcher_get_mask",
        "static uint32_t z[10000]; memset(z, 255, sizeof z); return z;",
        "the mask allows token",
    ),
    "one mask for all states": (
        "matcher_get_mask",
        "static uint32_t z[10000]; static int n; if (!n++) memcpy(z, TRUTH, 4000); return z;",
        "which validate_tokens",
    ),
    "masks turned round": (
        "matcher_get_mask",
        f"{ZEROS} uint32_t *m_ = TRUTH; for (int i = 0; i < 1000; i++) z[i] = ~m_[i]; return z;",
        "which validate_tokens",
    ),
    "no mask": ("matcher_get_mask", "return 0;", "compute_mask succeeds without a mask"),
    "a positive status": ("matcher_compute_mask", "return 1;", "compute_mask returns 1"),
    "a status later": (
        "matcher_compute_mask",
        "static int n; return n++ < 4 ? TRUTH : 7;",
        "compute_mask returns 7",
    ),
    "all is valid": ("matcher_validate_tokens", "return c;", "the mask forbids token"),
    "nothing is valid": ("matcher_validate_tokens", "return 0;", "the mask allows token"),
    "validity beyond measure": ("matcher_validate_tokens", "return 9;", "returns 9"),
    "validity fails": ("matcher_validate_tokens", "return -1;", "returns -1"),
    "nothing is consumed": ("matcher_consume_token", "return 1;", "cannot be consumed"),
    "a token is lost": (
        "matcher_consume_token",
        "static int n; return n++ % 3 == 1 ? 0 : TRUTH;",
        "",
    ),
    "it never ends": ("matcher_is_stopped", "return 0;", ""),
    "it has ended": ("matcher_is_stopped", "return 1;", ""),
    "it accepts nothing": ("matcher_is_accepting", "return 0;", ""),
}


@pytest.mark.parametrize("what", LIES)
def test_an_engine_that_lies_is_not_right(lab: Lab, tmp_path: Path, what: str) -> None:
    """Reference and variant are the same engine, so that their masks agree in every lie."""
    name, body, why = LIES[what]
    vocab, subject = lab.vocab("llama-spm"), case_file.load("json-tool-call", ROOT)
    engine = load(faulty_engine.build(tmp_path, f"llg_{name}", body))
    with (
        bridge.build(engine, vocab, get("greedy_tokenize")) as tokenizer,
        bridge.build(engine, vocab, REFERENCE) as reference,
    ):
        verdict = checks.judge(
            tokenizer, reference, get("greedy_tokenize"), subject, subject.lark(),
            [trace_of(text, vocab) for text in subject.texts], vocab,
        )  # fmt: skip
    assert verdict.label == "wrong"
    assert why in verdict.reason
    assert verdict.reason.startswith("engine: ") or not why
    assert "\n" not in verdict.reason


@pytest.mark.parametrize("size", [0, 4, 3996, 4004, 400_000])
def test_masks_of_another_size_are_never_read(lab: Lab, tmp_path: Path, size: int) -> None:
    engine = load(
        faulty_engine.build(tmp_path, "llg_matcher_get_mask_byte_size", f"return {size};")
    )
    with (
        bridge.build(engine, lab.vocab("llama-spm"), get("greedy_tokenize")) as tokenizer,
        pytest.raises(EngineError, match=f"its masks have {size} bytes, where 32000 tokens need"),
    ):
        tokenizer.matcher('start: "a"')


@pytest.mark.parametrize("name", ["new_matcher", "clone_matcher", "new_tokenizer"])
def test_an_engine_that_gives_nothing(tmp_path: Path, name: str) -> None:
    engine = load(faulty_engine.build(tmp_path, f"llg_{name}", "return 0;"))

    def use() -> None:
        with (
            byte_tokenizer(engine) as tokenizer,
            tokenizer.matcher('start: "a"') as matcher,
            matcher.clone(),
        ):
            assert engine.version

    with pytest.raises(EngineError, match=r"NULL|no tokenizer"):
        use()


def test_the_engine_answers_for_its_masks_alike_each_time(lab: Lab) -> None:
    subject = case_file.load("json-enum", ROOT)
    one, other = (judge(lab, "llama-bpe", "greedy_tokenize", subject) for _ in range(2))
    assert [replace(j, inside_ns=0) for j in one.judgements] == [
        replace(j, inside_ns=0) for j in other.judgements
    ]


def test_a_verdict_as_plain_data(lab: Lab) -> None:
    import json

    verdict = judge(lab, "llama-bpe", "greedy_tokenize", case_file.load("listed", ROOT))
    table = json.loads(json.dumps(verdict.to_json()))
    assert table["label"] == "limited"
    assert table["accepted"] == verdict.accepted == sum(t["accepted"] for t in table["texts"])
    assert table["forbidden"] == verdict.forbidden == 0
    assert table["missing"] == verdict.missing == 0
    assert [t["text"] for t in table["texts"]] == [j.text for j in verdict.judgements]
    assert {t["end"] for t in table["texts"]} <= {end.name.lower() for end in End}
    assert verdict.inside_ns == sum(j.inside_ns for j in verdict.judgements) > 0
    assert set(table["texts"][0]) == set(Judgement.__dataclass_fields__)
