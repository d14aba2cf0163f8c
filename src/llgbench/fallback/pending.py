"""Grammars in which a boundary is pending after a text, and what each of the two readings is alone.

A mask in such a state holds what either reading allows. Its partners are the same grammar where the
terminal cannot have ended at the boundary (the longer reading alone), and where it must have (the
other reading alone): the same text, and no boundary pending.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reading = Literal["both", "longer", "other"]


@dataclass(frozen=True)
class Pending:
    """One state with a boundary pending.

    Attributes:
        name: what it is called in tables.
        grammars: ``both``, in which a boundary is pending after the text, ``longer`` and
            ``other``, in which none is.
        text: where the mask is computed: after it.
    """

    name: str
    grammars: dict[Reading, str]
    text: bytes


def _pending(
    name: str, grammar: str, text: bytes, *, both: str, longer: str, other: str
) -> Pending:
    """Return a state whose grammars differ in one place, ``…``."""
    parts: dict[Reading, str] = {"both": both, "longer": longer, "other": other}
    return Pending(name, {r: grammar.replace("…", part) for r, part in parts.items()}, text)


def _checkpoint(gap: int) -> Pending:
    return _pending(
        f"checkpoint, {gap} bytes back",
        "start: HEAD TAIL\nHEAD: /…/\nTAIL: /b{200}d/\n", b"a" + b"b" * gap,
        both="a|ab{200}c", longer="ab{200}c", other="a",
    )  # fmt: skip


STATES = (
    _pending(
        "listed", 'start: STEM SUFFIX\nSTEM: …\nSUFFIX: "ed"\n', b"liste",
        both='"list" | "listen"', longer='"listen"', other='"list"',
    ),
    _pending(
        "ipv6",
        'start: "connect " (…)\nipv6: HEX "::" HEX\nHEX: /[0-9a-f]+/\n'
        "HOST_PORT: /[a-z0-9]+:[0-9]+/\n",
        b"connect fe80:",
        both="ipv6 | HOST_PORT", longer="HOST_PORT", other="ipv6",
    ),
    # The other reading is read again at each mask, few bytes or many; then it is kept as a level.
    _checkpoint(10),
    _checkpoint(60),
    _checkpoint(150),
    _pending(
        "long string", "start: HEAD TAIL\nHEAD: /…/\nTAIL: /[^y]*y/\n", b"a long text goes on",
        both="a|a[^x]*x", longer="a[^x]*x", other="a",
    ),
    # Nearly all tokens are allowed by the other reading, and by slices.
    _pending(
        "JSON string",
        'start: HEAD TAIL\nHEAD: /…/\nTAIL: /"[^"\\\\\\x00-\\x1F\\x7F]*"/\n', b'a"bbbb',
        both='a|a"b{200}c', longer='a"b{200}c', other="a",
    ),
    _pending(
        "dotted", "start: NAME EXT\nNAME: /…/\nEXT: /\\.[0-9]+/\n", b"libssl.",
        both="[a-z]+(\\.[a-z]+;)*", longer="[a-z]+\\.[a-z]+;", other="[a-z]+",
    ),
    _pending(
        "fstring",
        'start: "f" CHUNK ("{" NAME "}" CHUNK?)*\nCHUNK: /…/\nNAME: /[A-Za-z_]+/\n', b"fUser {",
        both="([^{}]|\\{\\{|\\}\\})+", longer="[^{}]+\\{\\{([^{}]|\\{\\{|\\}\\})*", other="[^{}]+",
    ),
)  # fmt: skip
