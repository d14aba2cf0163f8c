"""What is wrong with a vocabulary that ends or stalls llama.cpp, in words a user can act on.

llama.cpp asserts what it relies on and names a line of its source. This module reads the same file
by the gguf package and looks for what is behind the assertions that real files run into, and behind
a loop that never ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llgbench import isolated
from llgbench.errors import ProcessError
from llgbench.isolated import Limits

# The largest vocabularies are read in three seconds; the gguf package never ends on some files.
SECONDS = 30.0

# For trying a file in llama.cpp: far above what the largest take. A tokenizer that never ends would
# else first fill three quarters of the machine's memory.
TRIAL = Limits(120.0, 4096)


def diagnose(path: Path) -> str | None:
    """Return what is wrong with a GGUF's vocabulary, None where nothing is found."""
    try:
        return isolated.call_within(Limits.default(SECONDS), examine, path)
    except ProcessError:
        return None


def fault(model: str, tokens: Sequence[bytes]) -> str | None:
    """Return what llama.cpp relies on and a vocabulary does not have.

    Args:
        model: ``tokenizer.ggml.model``.
        tokens: ``tokenizer.ggml.tokens``.
    """
    first: dict[bytes, int] = {}
    for number, token in enumerate(tokens):
        if token in first and token:  # an empty one gets a name of its own
            shown = token.decode(errors="replace")
            return f"token {shown!r} is listed twice ({first[token]} and {number})"
        first[token] = number
    if model == "llama":  # SentencePiece: llama_vocab::byte_to_token
        for byte in range(256):
            if b"<0x%02X>" % byte not in first and bytes([byte]) not in first:
                return f"the vocabulary has no token for byte {byte:#04x}"
    if model == "rwkv":  # llm_tokenizer_rwkv_session::tokenize looks for ever where none matches
        spelled = {_spelled(token) for token in tokens}
        for byte in sorted({token[0] for token in spelled if token}):
            if bytes([byte]) not in spelled:
                return f"tokens begin with byte {byte:#04x}, and it is not a token by itself"
    return None


def _spelled(token: bytes) -> bytes:
    r"""Return an RWKV token's bytes, of which a file has ``\t``, ``\x0a`` and their like."""
    return re.sub(rb"\\(?:x([0-9a-f]{2})|(.))", _escape, token, flags=re.DOTALL)


def _escape(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes.fromhex(match[1].decode())
    return {b"t": b"\t", b"n": b"\n", b"r": b"\r"}.get(match[2], match[2])


def examine(path: Path) -> str | None:
    """Read a GGUF in this process; see :func:`diagnose`."""
    from gguf import GGUFReader

    fields: dict[str, Any] = GGUFReader(path).fields
    tokens = fields.get("tokenizer.ggml.tokens")
    model = fields.get("tokenizer.ggml.model")
    if tokens is None or model is None:
        return None
    spelled = [bytes(tokens.parts[part]) for part in tokens.data]
    return fault(str(model.contents()), spelled)
