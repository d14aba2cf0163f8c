"""What each engine is given: a case's grammar in the engine's own form, and texts in a white space.

White space is part of what is measured. Where it is flexible, any may stand between JSON's tokens;
spaced is ``", "`` and ``": "``, as Python's ``json.dumps`` writes; compact is none at all. It is
set on every engine alike, and the texts are written in it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

from llgbench.engines.peers import PeerSpec
from llgbench.errors import GrammarError, UnavailableError
from llgbench.inputs.case import REJECTED, Case, Outcome, Text

WhiteSpace = Literal["flexible", "spaced", "compact"]
WHITE_SPACES: tuple[WhiteSpace, ...] = get_args(WhiteSpace)

# What follows a comma and a colon.
_AFTER = {"spaced": " ", "compact": ""}
# As RFC 8259, section 2, has it.
_ANY = r"[ \t\n\r]*"

# A string of JSON, also one that is broken off.
_STRING = re.compile(rb'("(?:[^"\\]|\\.)*(?:"|\\?\Z))', re.DOTALL)
_SPACES = b" \t\n\r"

SCHEMA, LARK, GBNF = 0, 1, 2  # LB_PEER_SCHEMA and its fellows


@dataclass(frozen=True)
class Source:
    """A grammar as one engine reads it.

    Attributes:
        kind: SCHEMA, LARK or GBNF.
        text: of the grammar.
    """

    kind: int
    text: str


def white_space_of(case: Case, wanted: WhiteSpace) -> str:
    """Return what a table says of a case: a Lark grammar has white space of its own."""
    return wanted if case.kind == "json_schema" else "–"


def source(spec: PeerSpec | None, case: Case, white_space: WhiteSpace) -> Source:
    """Return a case's grammar for an engine; None for llguidance.

    Raises:
        UnavailableError: the engine has no such form of grammar, or no such white space.
        GrammarError: the grammar cannot be turned into the engine's form.
    """
    if spec is None:
        return Source(LARK, _with_separators(case, white_space).lark())
    if case.kind == "lark":
        if spec.kind in ("gbnf", "outlines"):
            raise UnavailableError(f"{spec.kind} does not read Lark")
        return Source(LARK, case.source)
    match spec.kind:
        case "gbnf":
            return Source(GBNF, _gbnf(case.source, white_space))
        case "outlines":
            return Source(SCHEMA, f"{white_space}\n{case.source}")
        case "glrmask" if white_space != "spaced":
            raise UnavailableError(
                f"glrmask writes JSON with ', ' and ': ' alone, not {white_space}"
            )
    return Source(SCHEMA, case.source)


def _with_separators(case: Case, white_space: WhiteSpace) -> Case:
    """Return a case whose schema carries llguidance's own settings of white space."""
    if case.kind == "lark":
        return case
    schema = json.loads(case.source)
    flexible = white_space == "flexible"
    settings: dict[str, object] = {"whitespace_flexible": flexible}
    if not flexible:
        after = _AFTER[white_space]
        settings |= {"item_separator": f",{after}", "key_separator": f":{after}"}
    if not isinstance(schema, dict):
        schema = {"allOf": [schema]}
    own = schema.get("x-guidance")
    schema = {**schema, "x-guidance": {**(own if isinstance(own, dict) else {}), **settings}}
    return replace(case, source=json.dumps(schema, ensure_ascii=False))


def _gbnf(schema: str, white_space: WhiteSpace) -> str:
    from llgbench.llama.gbnf import from_schema

    grammar = from_schema(schema)
    # The converter puts its rule `space` after every token of JSON.
    if white_space == "flexible":
        return _space_rule(grammar, _ANY)
    after = _AFTER[white_space]
    return re.sub(r'"([,:])" space', rf'"\1{after}"', _space_rule(grammar, '""'))


def _space_rule(grammar: str, to: str) -> str:
    found, n = re.subn(r"^space ::= .*$", lambda _: f"space ::= {to}", grammar, flags=re.MULTILINE)
    if n != 1:
        raise GrammarError("llama.cpp's converter writes no rule of white space")
    return found


# ---- texts -------------------------------------------------------------------------------------


def written(case: Case, white_space: WhiteSpace) -> Case:
    """Return a case with its texts in a white space; Lark's and flexible ones stay as they are.

    Texts that differ in white space alone become one.
    """
    if case.kind == "lark" or white_space == "flexible":
        return case
    texts: dict[bytes, Text] = {}
    for text in case.texts:
        new = _written(text, _AFTER[white_space])
        texts.setdefault(new.data, new)
    return replace(case, texts=tuple(texts.values()))


def _written(text: Text, after: str) -> Text:
    def moved(outcome: Outcome | None) -> Outcome | None:
        if outcome is None or outcome.reject_at is None:
            return outcome
        at = place(text.data, outcome.reject_at, after)
        return REJECTED if at is None else Outcome(at)

    data = respaced(text.data, after)
    return replace(text, data=data, stock=moved(text.stock), fallback=moved(text.fallback))


def respaced(data: bytes, after: str) -> bytes:
    """Return JSON with no white space but ``after`` each comma and colon, strings untouched.

    It need not be valid, nor whole.
    """
    parts = _STRING.split(data)
    for at in range(0, len(parts), 2):  # those between strings
        part = parts[at].translate(None, _SPACES)
        parts[at] = part.replace(b",", b"," + after.encode()).replace(b":", b":" + after.encode())
    return b"".join(parts)


def place(data: bytes, at: int, after: str) -> int | None:
    """Return where in :func:`respaced` JSON a byte, or the end, has gone; None where it is not."""
    found = len(respaced(data[:at], after))
    gone = at < len(data) and len(respaced(data[: at + 1], after)) == found
    return None if gone else found
