"""Cases: one folder under grammars/ each, and MaskBench files read as cases.

A case is a grammar with texts and what is known about them. ``case.toml`` is documented in
grammars/README.md. A case with a parameter is a family: ``checkpoint`` has one member per value,
named ``checkpoint@64``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from llgbench.errors import GrammarError
from llgbench.inputs.grammar import DECLARATION, with_options

Kind = Literal["lark", "json_schema"]


@dataclass(frozen=True)
class Outcome:
    """What a lexer does with a text: accepts it, or rejects it at a byte.

    Attributes:
        reject_at: offset of the first byte that cannot be consumed; the text's length where only
            the end of input is refused; None where the text is accepted, or ``anywhere``.
        anywhere: the text must be rejected, and nobody recorded at which byte.
    """

    reject_at: int | None = None
    anywhere: bool = False

    @property
    def accepted(self) -> bool:
        """Whether the whole text is in the language as this lexer reads it."""
        return self.reject_at is None and not self.anywhere

    def met_by(self, found: Outcome) -> bool:
        """Whether what was found is what this one records."""
        return not found.accepted if self.anywhere else self == found

    def __str__(self) -> str:
        if self.anywhere:
            return "rejected"
        return "accepted" if self.reject_at is None else f"rejected at byte {self.reject_at}"


REJECTED = Outcome(anywhere=True)


@dataclass(frozen=True)
class Text:
    """One text of a case.

    Attributes:
        name: unique within the case.
        data: the bytes; always valid UTF-8.
        stock: what stock llguidance does with it; None where nothing is recorded.
        fallback: what the greedy lexeme fallback does with it; None where nothing is recorded.
        note: why the text is there, where its name does not say it.
        special_tokens: names in the text that stand for the special token of that name; None:
            those of every special token that the vocabulary has.
    """

    name: str
    data: bytes = field(repr=False)
    stock: Outcome | None = None
    fallback: Outcome | None = None
    note: str = ""
    special_tokens: tuple[str, ...] | None = ()

    def split(self, names: Iterable[str]) -> list[tuple[bytes, bool]]:
        """Return the text in pieces, and of each whether it is one of the names."""
        longest_first = sorted((n.encode() for n in names if n), key=len, reverse=True)
        if not longest_first:
            return [(self.data, False)]
        pieces = re.split(b"(" + b"|".join(map(re.escape, longest_first)) + b")", self.data)
        return [(piece, at % 2 == 1) for at, piece in enumerate(pieces) if piece]


@dataclass(frozen=True)
class Case:
    """A grammar with its texts.

    Attributes:
        name: folder name, with ``@value`` for a member of a family, or the MaskBench file's stem.
        kind: ``lark`` or ``json_schema``.
        source: the grammar text as it stands in its file (after substitution of the parameter).
        path: the grammar's file, for messages.
        options: llguidance grammar options the case itself needs (``no_forcing`` and the like).
    """

    name: str
    kind: Kind
    source: str = field(repr=False)
    path: Path
    reason: str
    texts: tuple[Text, ...]
    tags: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    value: int | None = None

    def lark(self, options: Mapping[str, Any] | None = None) -> str:
        """Return the grammar as llama.cpp would hand it over: Lark with an options line.

        A schema becomes ``start: %json {…}`` as in llama.cpp's json_schema_to_grammar, so that
        options reach it and every variant compiles the same kind of input.

        Args:
            options: merged over the case's own options.
        """
        merged = {**self.options, **(options or {})}
        body = f"start: %json {self.source}" if self.kind == "json_schema" else self.source
        return with_options(body, merged)

    def explain(self, error: GrammarError) -> str:
        """Return llguidance's words about this grammar, with the line numbers of its file."""
        words = str(error)
        if self.kind == "json_schema":  # the Lark around it is nobody's file
            return _EXCERPT.sub("", re.sub(r"^(at )?\d+\(\d+\): ", "", words))
        if DECLARATION.search(self.source):
            return words
        words = re.sub(r"^(at )?(\d+)\(", lambda m: f"{m[1] or ''}{int(m[2]) - 1}(", words)
        return _EXCERPT.sub(
            lambda m: f"{m[1]}{int(m[2]) - 1}{m[3]}" if int(m[2]) > 1 else "", words
        )

    @cached_property
    def digest(self) -> str:
        """Return a hash of all that is measured: kind, options, grammar and texts."""
        h = hashlib.sha256()
        for part in (self.kind, json.dumps(dict(self.options), sort_keys=True), self.source):
            h.update(part.encode() + b"\0")
        for text in self.texts:
            h.update(text.name.encode() + b"\0" + text.data + b"\0")
            if text.special_tokens != ():
                h.update(json.dumps(text.special_tokens).encode() + b"\0")
        return h.hexdigest()[:16]


# Lines of the grammar that llguidance quotes in a message, each with its number.
_EXCERPT = re.compile(r"^( *)(\d+)( \| .*\n?)", re.MULTILINE)
