"""What one measurement is of: a case, a vocab, a variant and an engine; and the profiles.

Pure and cheap to import: ASV's discovery imports it in every benchmark module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llgbench.errors import InputError

Profile = Literal["quick", "full"]


@dataclass(frozen=True, order=True)
class Configuration:
    """One cell of the grid.

    Attributes:
        case: such as ``json-tool-call`` or ``checkpoint@64``.
        vocab: such as ``llama-bpe``.
        variant: such as ``baseline``.
        engine: an engine's name, or ``default``: the one the variant runs on by itself.
    """

    case: str
    vocab: str
    variant: str
    engine: str = "default"

    def __str__(self) -> str:
        parts = [self.case, self.vocab, self.variant]
        return " | ".join(parts if self.engine == "default" else [*parts, self.engine])

    @classmethod
    def parse(cls, text: str) -> Configuration:
        """Read back what ``str`` wrote.

        Raises:
            InputError: the text has not three or four parts.
        """
        parts = [part.strip() for part in text.split("|")]
        if len(parts) not in (3, 4):
            raise InputError(f"{text!r} is not a configuration: case | vocab | variant [| engine]")
        return cls(*parts)


# The vocabularies of the quick profile: one SentencePiece, one of 128k and one of 262k tokens.
QUICK_VOCABS = ("llama-spm", "llama-bpe", "gemma-4")

# Pooled in the headline table: schemas alone, so that it compares with the field's (MaskBench).
QUICK_JSON_CASES = ("json-tool-call", "json-nested", "github-workflow", "large-enum")


def is_json(case: str) -> bool:
    """Whether a case of the quick grid is one of its schemas."""
    return case in QUICK_JSON_CASES


QUICK_LEXER_CASES = ("listed", "fstring-greedy", "cpp-templates", "lazy-stop")

CHECKPOINTS = tuple(f"checkpoint@{n}" for n in (16, 64, 65, 128, 256))


def grid(
    profile: Profile, variants: tuple[str, ...], cases: tuple[str, ...], vocabs: tuple[str, ...]
) -> list[Configuration]:
    """Return the profile's configurations: listed, not multiplied out.

    quick: the JSON cases on each of its vocabularies; the lexer's cases and the checkpoints on
    one. full: every case on the quick vocabularies, and the quick JSON cases on every vocabulary.

    Args:
        profile: which.
        variants: run in each.
        cases: all cases there are, for ``full``.
        vocabs: all vocabularies there are, for ``full``.
    """
    pairs = [(case, vocab) for vocab in QUICK_VOCABS for case in QUICK_JSON_CASES]
    pairs += [(case, "llama-bpe") for case in (*QUICK_LEXER_CASES, *CHECKPOINTS)]
    if profile == "full":
        pairs += [(case, vocab) for vocab in QUICK_VOCABS for case in cases]
        pairs += [(case, vocab) for vocab in vocabs for case in QUICK_JSON_CASES]
    return [
        Configuration(case, vocab, variant)
        for case, vocab in dict.fromkeys(pairs)
        for variant in variants
    ]
