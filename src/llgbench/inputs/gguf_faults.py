"""What is wrong with a vocabulary that llama.cpp does not survive, in words a user can act on.

llama.cpp asserts what it relies on and names a line of its source. This module reads the same file
by the gguf package and looks for what is behind the assertions that real files run into.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llgbench import isolated
from llgbench.errors import ProcessError
from llgbench.isolated import Limits

# The largest vocabularies are read in three seconds; the gguf package never ends on some files.
SECONDS = 30.0


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
    return None


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
