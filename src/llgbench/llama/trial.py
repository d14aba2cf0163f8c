"""A foreign GGUF is tried before it is used: llama.cpp does not survive every one."""

from __future__ import annotations

from pathlib import Path

from llgbench import isolated
from llgbench.errors import ProcessError, VocabError
from llgbench.inputs import catalogue, gguf_faults
from llgbench.llama.vocab import SOURCES, open_vocab


def rehearse(name: str, root: Path | None = None) -> None:
    """Open a vocabulary in a process of its own, and ask it for all that is ever asked of it.

    llama.cpp asserts or throws on some GGUF files. The files of the catalogue are known by their
    sha256 and are not tried.

    Raises:
        UnknownNameError, UnavailableError: as :func:`open_vocab`.
        VocabError: it cannot be used, or llama.cpp does not survive it.
    """
    entry = catalogue.vocabs(root).get(name)
    if entry is not None:
        if not entry.here:
            raise catalogue.not_fetched(name)
        return
    try:
        isolated.call_within(gguf_faults.TRIAL, exercise, name)
    except ProcessError as error:
        path = catalogue.vocab_path(name, root)
        known = gguf_faults.diagnose(path) or str(error)
        raise VocabError(f"{path}: llama.cpp: {known}") from None


def exercise(name: str) -> None:
    """Open a vocabulary, build both token tables, and tokenize every byte; in this process."""
    with open_vocab(name) as opened:
        for source in SOURCES:
            opened.build_table(source).close()
        for byte in range(1, 256):
            opened.tokenize(bytes([byte]), parse_special=True)
