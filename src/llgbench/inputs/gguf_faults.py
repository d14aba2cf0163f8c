"""What is wrong with a vocabulary that llama.cpp does not survive, in words a user can act on.

llama.cpp asserts what it relies on and names a line of its source. This module reads the same file by
the gguf package and looks for what is behind the assertions that real files run into. It runs in a
process of its own: ``python -m llgbench.inputs.gguf_faults FILE`` prints a line, or nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llgbench import processes
from llgbench.errors import ProcessError

_LIMIT_S = 60.0


def diagnose(path: Path) -> str | None:
    """Return what is wrong with a GGUF's vocabulary, None where nothing is found."""
    try:
        done = processes.run(
            [sys.executable, "-m", "llgbench.inputs.gguf_faults", str(path)], seconds=_LIMIT_S
        )
    except ProcessError:
        return None
    return done.stdout.decode(errors="replace").strip() or None if done.ok else None


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


def _read(path: Path) -> str | None:
    from gguf import GGUFReader

    fields: dict[str, Any] = GGUFReader(path).fields
    tokens = fields.get("tokenizer.ggml.tokens")
    model = fields.get("tokenizer.ggml.model")
    if tokens is None or model is None:
        return None
    spelled = [bytes(tokens.parts[part]) for part in tokens.data]
    return fault(str(model.contents()), spelled)


if __name__ == "__main__":
    print(_read(Path(sys.argv[1])) or "")
