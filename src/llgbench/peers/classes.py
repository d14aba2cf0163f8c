"""Named differences of masks: where the standards let an engine choose, no choice is wrong.

A mask that differs from the reference's in such tokens alone is as good as it. Which tokens these
are depends on where in JSON a step stands, so there is one set of tokens per class and place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llgbench._native import lib
from llgbench.engines.engine import INVALID_TOKEN, TokenArray
from llgbench.llama.vocab import Vocab

# Where in JSON a byte stands. After `\u` come four digits; after C2 the rest of U+0080 to U+00BF.
OUTSIDE, STRING, ESCAPE, U1, U2, U3, U4, NUMBER, AFTER_C2 = range(9)
N_STATES = 9
_IN_STRING = (STRING, AFTER_C2)


def _lexical(state: int, byte: int) -> int:
    match state:
        case 1 | 8:  # STRING, AFTER_C2
            return {0x22: OUTSIDE, 0x5C: ESCAPE, 0xC2: AFTER_C2}.get(byte, STRING)
        case 2:  # ESCAPE
            return U1 if byte == 0x75 else STRING
        case 3 | 4 | 5:  # U1 to U3
            return state + 1
        case 6:  # U4
            return STRING
        case 7 if byte in b"0123456789+-.eE":  # NUMBER
            return NUMBER
    return STRING if byte == 0x22 else NUMBER if byte in b"-0123456789" else OUTSIDE


# By where a byte of JSON stands, and the byte: where the byte after it does.
NEXT = [bytes(_lexical(state, byte) for byte in range(256)) for state in range(N_STATES)]


@dataclass(frozen=True)
class Class:
    """A named difference.

    Attributes:
        name: as a table shows it.
        rule: why neither side of it is wrong.
    """

    name: str
    rule: str


# In the order of their bits. The last two explain a token that an engine forbids, and none that it
# allows beyond the reference: see ONE_SIDED in csrc/peer_replay.c.
CLASSES = (
    Class("json-escapes", "RFC 8259, section 7: any character may be escaped, and few must be"),
    Class("white-space", "RFC 8259, section 2: white space between tokens is insignificant"),
    Class("controls", "RFC 8259, section 7: U+007F to U+009F may stand in a string, and need not"),
    Class("numbers", "RFC 8259, section 6: range and precision may be limited, exponents left out"),
    Class("partial-utf8", "RFC 3629: a token may end in a character; an engine need not offer it"),
)
FORCED = Class("forced", "one spelling of bytes that must follow; the text is the same")
assert len(CLASSES) == lib.LB_PEER_CLASSES

_SPACES = frozenset(b" \t\n\r")
_NUMBER = re.compile(rb"[\s,:\[{]*[-0-9]")
_IN_NUMBER = re.compile(rb"[-+.eE0-9]")
# What a token has that belongs to one of the first three classes or the last; but a space before
# all else, which is treated by itself.
_NOTABLE = re.compile(rb"[\"\\\t\n\r\x7f-\xff]|(?!^) ")
# Control characters that JSON does not ask to escape: U+007F, and U+0080 to U+009F in UTF-8.
_CONTROL = re.compile(rb"\x7f|\xc2[\x80-\x9f]")


def sets(vocab: Vocab, *, json: bool) -> npt.NDArray[np.uint32]:
    """Return the tokens that each class explains, shape (N_STATES, classes, words).

    Args:
        vocab: whose tokens.
        json: whether the grammar is of JSON; without it no class explains anything.
    """
    words = (vocab.n_tokens + 31) // 32
    found = np.zeros((N_STATES, len(CLASSES), 32 * words), bool)
    if json:
        for token, data in enumerate(vocab.table("token_to_piece").tokens):
            if _NOTABLE.search(data) is not None:
                for state in (OUTSIDE, NUMBER, *_IN_STRING):
                    escapes, spaces = _holds(state, data)
                    found[state, 0, token], found[state, 1, token] = escapes, spaces
                    found[state, 2, token] = _has_control(state, data)
                if not data.isascii() and not _whole(data):
                    found[_IN_STRING, 4, token] = True
            elif data[:1] == b" ":  # " the": white space, and half of all tokens
                found[(OUTSIDE, NUMBER), 1, token] = True
            found[OUTSIDE, 3, token] = _NUMBER.match(data) is not None
            found[NUMBER, 3, token] = _IN_NUMBER.match(data) is not None
        for state in (ESCAPE, U1, U2, U3, U4):
            found[state, 0] = True
    return np.packbits(found, axis=2, bitorder="little").view(np.uint32).copy()


def _holds(state: int, data: bytes) -> tuple[bool, bool]:
    """Return whether a token escapes in a string, and whether it has white space outside of one."""
    if 0x22 not in data:
        outside = state not in _IN_STRING
        return not outside and 0x5C in data, outside and not _SPACES.isdisjoint(data)
    escapes = spaces = False
    for byte in data:
        spaces |= state in (OUTSIDE, NUMBER) and byte in _SPACES
        state = NEXT[state][byte]
        escapes |= state == ESCAPE
    return escapes, spaces


def _has_control(state: int, data: bytes) -> bool:
    """Return whether a token puts a control character into a string."""
    if state == AFTER_C2:
        data = b"\xc2" + data
    return (state in _IN_STRING or 0x22 in data) and _CONTROL.search(data) is not None


def _whole(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def states(tokens: TokenArray, vocab: Vocab) -> npt.NDArray[np.uint8]:
    """Return where in JSON each step of a trace stands, and the end; shape (n + 1,)."""
    pieces = vocab.table("token_to_piece").tokens
    state, found = OUTSIDE, [OUTSIDE]
    for token in tokens.tolist():
        for byte in pieces[token]:
            state = NEXT[state][byte]
        found.append(state)
    return np.array(found, np.uint8)


def text_tokens(vocab: Vocab) -> npt.NDArray[np.uint32]:
    """Return the tokens over which masks are compared, as the words of a mask.

    Those that are text, and the end token: a special token belongs to no grammar here, and one
    without bytes to no text.
    """
    table = vocab.table("token_to_piece")
    bits = np.zeros(32 * ((vocab.n_tokens + 31) // 32), bool)
    bits[: vocab.n_tokens] = (table.lens > 0) & (table.marked == 0)
    if vocab.eos != INVALID_TOKEN:
        bits[vocab.eos] = True
    words: npt.NDArray[np.uint32] = np.packbits(bits, bitorder="little").view(np.uint32)
    return words


def names(bits: int) -> list[str]:
    """Return the names of the classes whose bits are set."""
    return [known.name for at, known in enumerate(CLASSES) if bits >> at & 1]
