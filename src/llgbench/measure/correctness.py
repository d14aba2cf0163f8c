"""The whole of ``llgbench check``: probes on every vocab and variant, and every case's texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

from llgbench import isolated
from llgbench.engines import registry
from llgbench.errors import GrammarError, ProcessError, UnavailableError, VocabError
from llgbench.files import one_line
from llgbench.inputs import case_file, catalogue
from llgbench.inputs.case import Case
from llgbench.inputs.configuration import Configuration
from llgbench.inputs.variant import VARIANTS, get
from llgbench.llama.trial import rehearse
from llgbench.measure import outcomes, probes
from llgbench.measure.checks import Verdict
from llgbench.measure.probes import Probes
from llgbench.measure.runner import Workbench, engine_for, engine_name, judge, prepare, traces_of


class Progress(Protocol):
    """What progress is told; see output.Steps."""

    def doing(self, what: str) -> None:
        """Show what is being done."""

    def done(self, n: int = 1) -> None:
        """Count steps as done."""


Show = Callable[[int, str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class TextCheck:
    """One text of a case on one lexer, byte by byte.

    Attributes:
        recorded, found: outcomes in words; ``recorded`` is empty where nothing is.
        as_recorded: whether the engine does what case.toml says; None where that says nothing.
    """

    case: str
    text: str
    lexer: str
    recorded: str
    found: str

    as_recorded: bool | None


@dataclass
class Found:
    """Everything a check found.

    Attributes:
        probes: by vocab and variant.
        texts: acceptance by case.
        verdicts: of masks, where asked for, with their configuration.
        unavailable: what could not be checked, with the reason.
        unexpected: one line for each thing that is not as it must be.
    """

    probes: list[Probes] = field(default_factory=list)
    texts: list[TextCheck] = field(default_factory=list)
    verdicts: list[tuple[Configuration, Verdict]] = field(default_factory=list)
    unavailable: list[tuple[str, str]] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """Append what another check found."""
        for part in fields(self):
            getattr(self, part.name).extend(getattr(other, part.name))

    def probe_rows(self) -> list[dict[str, Any]]:
        """Return a row per vocab and variant."""
        rows = [
            {
                "vocab": p.vocab,
                "variant": p.variant,
                "spaced": p.spaced,
                "forced": ", ".join(
                    f"{token} {piece!r}"
                    for token, piece in zip(p.forced[:6], p.forced_bytes[:6], strict=True)
                ),
                "forcing": "no" if p.greedy else "yes",
                "literal": _literal(p),
                "verdict": "right" if p.right else "wrong",
            }
            for p in self.probes
        ]
        return rows + [
            {"vocab": what, "variant": "", "spaced": None, "forced": "", "forcing": "",
             "literal": "", "verdict": f"not available: {why}"}
            for what, why in self.unavailable
        ]  # fmt: skip

    def text_rows(self) -> list[dict[str, Any]]:
        """Return a row per text and lexer."""
        return [
            {"case": t.case, "text": t.text, "lexer": t.lexer, "recorded": t.recorded,
             "found": t.found, "as recorded": t.as_recorded}
            for t in self.texts
        ]  # fmt: skip

    def mask_rows(self) -> list[dict[str, Any]]:
        """Return a row per case, vocab and variant."""
        return [
            {"case": c.case, "vocab": c.vocab, "variant": c.variant, "forbidden": v.forbidden,
             "accepted": v.accepted, "verdict": str(v)}
            for c, v in self.verdicts
        ]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "probes": [{**asdict(p), "right": p.right} for p in self.probes],
            "texts": self.text_rows(),
            "masks": [{**asdict(c), "verdict": v.to_json()} for c, v in self.verdicts],
            "unavailable": [{"what": what, "reason": why} for what, why in self.unavailable],
            "unexpected": self.unexpected,
        }


def check(
    vocabs: Sequence[str], variants: Sequence[str], cases: Sequence[str], *, masks: bool, show: Show
) -> Found:
    """Check what is asked for; empty sequences mean everything there is.

    Vocabularies and engines are loaded in processes of their own: what does not survive is said,
    and the rest is checked.

    Raises:
        UnknownNameError: of a vocab, variant or case.
        CaseError: a case cannot be read.
        VocabError: the one vocab that was asked for cannot be used.
    """
    found = Found()
    chosen_variants = tuple(get(name).name for name in variants or tuple(VARIANTS))
    chosen_vocabs = tuple(vocabs) or tuple(catalogue.vocabs())
    chosen_cases = tuple(cases) or tuple(case_file.names())
    for name in chosen_cases:
        case_file.load(name)
    lexers = _lexers(chosen_variants, found)
    with show(len(chosen_vocabs) + len(chosen_cases), "checking") as progress:
        for name in chosen_vocabs:
            progress.doing(f"probes on {name}")
            try:
                rehearse(name)
            except (UnavailableError, VocabError) as error:
                if chosen_vocabs == (name,) and isinstance(error, VocabError):
                    raise  # nothing else was asked for
                found.unavailable.append((name, str(error)))
            else:
                found.add(_apart(check_probes, name, chosen_variants))
                if masks:
                    found.add(_each(check_masks, name, chosen_variants, chosen_cases))
            progress.done()
        progress.doing("texts")
        found.add(_each(check_texts, "", lexers, chosen_cases))
        progress.done(len(chosen_cases))
    return found


# A vocab's name, names of variants, names of cases.
Piece = Callable[[str, tuple[str, ...], tuple[str, ...]], Found]


def _each(piece: Piece, vocab: str, variants: tuple[str, ...], cases: tuple[str, ...]) -> Found:
    """Check cases in one process, or one by one where they do not survive that."""
    try:
        return isolated.call(piece, vocab, variants, cases)
    except ProcessError as error:
        found = Found()
        if len(cases) > 1:
            for name in cases:
                found.add(_each(piece, vocab, variants, (name,)))
        else:
            where = f"{cases[0]} on {vocab}" if vocab else cases[0]
            found.unexpected.append(f"{where}: {error}")
        return found


def _apart(
    piece: Callable[[str, tuple[str, ...]], Found], vocab: str, variants: tuple[str, ...]
) -> Found:
    try:
        return isolated.call(piece, vocab, variants)
    except ProcessError as error:
        return Found(unexpected=[f"{vocab}: {error}"])


def _lexers(variants: Sequence[str], found: Found) -> tuple[str, ...]:
    """Return one variant for each lexer: what a lexer accepts does not depend on the bridge."""
    lexers = []
    if any(not get(name).fallback for name in variants):
        lexers.append("greedy_tokenize")
    if any(get(name).fallback for name in variants):
        try:
            engine_name(Configuration("", "", "greedy_lexeme_fallback"))
            lexers.append("greedy_lexeme_fallback")
        except UnavailableError as error:
            found.unavailable.append(("greedy_lexeme_fallback", str(error)))
    return tuple(lexers)


def check_probes(name: str, variants: tuple[str, ...]) -> Found:
    """Ask the probes of one vocab, in this process."""
    found = Found()
    with Workbench(name) as bench:
        for variant_name in variants:
            variant = get(variant_name)
            try:
                engine = engine_for(Configuration("", name, variant_name))
                asked = probes.probes(
                    bench.vocab, variant, bench.tokenizer(engine, variant), engine
                )
            except UnavailableError:
                continue  # said once, by _lexers
            found.probes.append(asked)
            exact = variant.token_bytes == "token_to_piece"
            if exact and asked.spaced:
                found.unexpected.append(f"{variant_name} on {name} allows {asked.spaced} spaces")
            if variant.tokenize != "always" and not asked.right:
                found.unexpected.append(f"{variant_name} on {name} forces wrong tokens")
            if asked.greedy and asked.literal_tokens:
                found.unexpected.append(
                    f"{variant_name} on {name} takes the text {asked.literal!r} for a token"
                )
    return found


def check_masks(name: str, variants: tuple[str, ...], cases: tuple[str, ...]) -> Found:
    """Judge the masks of cases on one vocab, in this process."""
    found = Found()
    with Workbench(name) as bench:
        for subject in map(case_file.load, cases):
            _check_masks(subject, bench, variants, found)
    return found


def check_texts(_: str, lexers: tuple[str, ...], cases: tuple[str, ...]) -> Found:
    """Check what the lexers accept of cases' texts, in this process."""
    found = Found()
    for subject in map(case_file.load, cases):
        for lexer in lexers:
            _check_texts(subject, lexer, found)
    return found


def _check_masks(subject: Case, bench: Workbench, variants: Sequence[str], found: Found) -> None:
    try:
        traces = traces_of(subject, bench.vocab)
    except UnavailableError as error:
        found.unavailable.append((f"{subject.name} on {bench.vocab.name}", str(error)))
        return
    for name in variants:
        configuration = Configuration(subject.name, bench.vocab.name, name)
        try:
            item = prepare(configuration, subject, bench)
            verdict = judge(item, subject, traces, bench)
        except UnavailableError:
            continue
        except GrammarError as error:
            found.unexpected.append(f"{subject.name} does not compile: {_words(subject, error)}")
            continue
        found.verdicts.append((configuration, verdict))
        if verdict.label == "wrong" and item.variant.tokenize != "always":
            found.unexpected.append(f"{configuration}: {verdict.reason}")


def _check_texts(subject: Case, lexer: str, found: Found) -> None:
    variant = get(lexer)
    engine = registry.get(registry.default_for(variant))
    if not subject.texts:
        found.unavailable.append((subject.name, "it has no texts"))
    for text in subject.texts:
        try:
            outcome = outcomes.outcome(engine, subject, text, variant)
        except GrammarError as error:
            found.unexpected.append(f"{subject.name} does not compile: {_words(subject, error)}")
            return
        recorded = outcomes.recorded(text, variant)
        fault = outcomes.unlike_recorded(text, outcome, variant)
        found.texts.append(TextCheck(
            subject.name, text.name, "fallback" if variant.fallback else "stock",
            "" if recorded is None else str(recorded), str(outcome),
            None if recorded is None else fault is None,
        ))  # fmt: skip
        if fault:
            found.unexpected.append(f"{subject.name}: the {found.texts[-1].lexer} lexer {fault}")


def _words(subject: Case, error: GrammarError) -> str:
    return one_line(subject.explain(error))


def _literal(probes: Probes) -> str:
    """Say what a literal became that is spelled as a special token is named."""
    if not probes.literal:
        return ""
    return "taken for a token" if probes.literal_tokens else "text"
