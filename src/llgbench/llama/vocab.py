"""Vocabularies: GGUF files opened by llama.cpp with ``vocab_only``."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from llgbench import files
from llgbench._native import ffi, lib
from llgbench.engines.engine import INVALID_TOKEN, TokenArray
from llgbench.engines.handle import Handle
from llgbench.errors import UnavailableError, UnknownNameError, VocabError
from llgbench.inputs import catalogue
from llgbench.inputs.catalogue import Kind
from llgbench.llama.api import first_error, llama, quiet

if TYPE_CHECKING:
    from llgbench.inputs.variant import Bytes

# enum llama_vocab_type (include/llama.h)
_KINDS: tuple[Kind, ...] = ("none", "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2")
SOURCES: dict[Bytes, int] = {
    "detokenize": lib.LB_DETOKENIZE,
    "token_to_piece": lib.LB_TOKEN_TO_PIECE,
}


class TokenTable(Handle):
    """The bytes of every token, in native memory.

    Attributes:
        lens: bytes of each token, shape (n_tokens,), uint32; a view.
        data: all bytes one after another, uint8; a view.
        marked: 1 where the bytes are 0xff and the special form, shape (n_tokens,), uint8; a view.
        build_ns: time to build it.
    """

    def __init__(self, pointer: Any) -> None:
        """Take ownership of a filled ``lb_token_table *``."""
        self._pointer = pointer
        self.build_ns = int(pointer.build_ns)

    @property
    def lens(self) -> TokenArray:
        """See the class; every view ends with the table."""
        p = self.pointer
        return np.frombuffer(ffi.buffer(p.lens, p.n_tokens * 4), np.uint32)

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """See the class."""
        p = self.pointer
        return np.frombuffer(ffi.buffer(p.bytes, p.size), np.uint8)

    @property
    def marked(self) -> npt.NDArray[np.uint8]:
        """See the class."""
        p = self.pointer
        return np.frombuffer(ffi.buffer(p.marked, p.n_tokens), np.uint8)

    def _free(self, pointer: Any) -> None:
        lib.lb_token_table_free(pointer)

    @cached_property
    def tokens(self) -> list[bytes]:
        """The bytes of each token as Python objects."""
        ends = np.cumsum(self.lens, dtype=np.int64).tolist()
        data, start, found = self.data.tobytes(), 0, []
        for end in ends:
            found.append(data[start:end])
            start = end
        return found


class Vocab(Handle):
    """A vocabulary opened by llama.cpp.

    Attributes:
        name: the catalogue's name, or the file's stem.
        path: the GGUF file.
        sha256: of the file.
        n_tokens: how many tokens there are.
        kind: llama.cpp's vocabulary type.
        eos: the end token as llama.cpp's bridge picks it (eot, else eos), or INVALID_TOKEN.
    """

    def __init__(self, name: str, path: Path, sha256: str) -> None:
        """Open a GGUF with ``vocab_only``; use :func:`open_vocab`, which verifies it first.

        Raises:
            VocabError: llama.cpp does not load it.
        """
        self.name, self.path, self.sha256 = name, path, sha256
        self._llama = llama()
        from llama_cpp import llama_cpp as c

        params = c.llama_model_default_params()
        params.vocab_only = True
        lib.lb_llama_forget_errors()
        with quiet():
            model = c.llama_model_load_from_file(os.fsencode(path), params)
        if not model:
            raise VocabError(f"{path}: llama.cpp does not load it: {first_error()}")
        self._pointer = model
        self._free_model = c.llama_model_free
        address = ctypes.cast(c.llama_model_get_vocab(model), ctypes.c_void_p).value
        self._vocab = ffi.cast("llama_vocab *", address)
        self.n_tokens = int(self._llama.n_tokens(self.vocab))
        if self.n_tokens == 0:
            self.close()
            raise VocabError(f"{path}: the file holds no vocabulary")
        kind = int(c.llama_vocab_type(c.llama_model_get_vocab(model)))
        self.kind: Kind = _KINDS[kind] if kind < len(_KINDS) else "none"
        eot = self._llama.eot(self.vocab)
        eos = eot if eot >= 0 else self._llama.eos(self.vocab)
        self.eos = int(eos) if eos >= 0 else INVALID_TOKEN

    def _free(self, pointer: Any) -> None:
        for table in self._tables.values():
            table.close()
        self._tables.clear()
        self._free_model(pointer)

    @property
    def vocab(self) -> Any:
        """``llama_vocab *``.

        Raises:
            ValueError: the vocabulary is closed.
        """
        _ = self.pointer
        return self._vocab

    @cached_property
    def _tables(self) -> dict[str, TokenTable]:
        return {}

    def table(self, source: Bytes) -> TokenTable:
        """Return the token bytes as one of llama.cpp's functions gives them, built once."""
        if source not in self._tables:
            self._tables[source] = self.build_table(source)
        return self._tables[source]

    def build_table(self, source: Bytes) -> TokenTable:
        """Build a table anew; the caller owns it.

        Raises:
            VocabError: llama.cpp refuses a token.
        """
        pointer = ffi.new("lb_token_table *")
        if lib.lb_token_table_build(self._llama, self.vocab, SOURCES[source], pointer) != 0:
            raise VocabError(f"{self.path}: llama.cpp does not give the bytes of every token")
        return TokenTable(pointer)

    def tokenize(self, data: bytes, *, parse_special: bool = False) -> TokenArray:
        """Return what ``llama_tokenize(add_special=false)`` makes of the bytes.

        Raises:
            VocabError: it fails, or answers with a token that the vocabulary does not have.
        """
        room = len(data) + 8
        tokens = np.empty(room, np.int32)
        n = self._llama.tokenize(
            self.vocab, data, len(data), ffi.from_buffer("int32_t[]", tokens), room, False,
            parse_special,
        )  # fmt: skip
        if n < 0:
            raise VocabError(f"{self.path}: llama_tokenize fails on {data[:40]!r}")
        found = tokens[:n]
        # llama.cpp's "no token" stands where a vocabulary lacks the token for what is unknown.
        for token in found[(found < 0) | (found >= self.n_tokens)][:1]:
            raise VocabError(
                f"{self.path}: llama_tokenize answers with token {token} on {data[:40]!r}, "
                f"and the vocabulary has {self.n_tokens}"
            )
        return found.astype(np.uint32)

    def spell(self, tokens: TokenArray) -> bytes:
        """Return the real bytes of tokens (``llama_token_to_piece``, lstrip = 0)."""
        pieces = self.table("token_to_piece").tokens
        return b"".join(map(pieces.__getitem__, tokens.tolist()))

    def trace(self, text: bytes) -> TokenArray:
        """Return tokens whose real bytes are exactly the text's, the same for every variant.

        llama_tokenize's own where it is byte-exact; else the same behind a sentinel; else the
        longest token first, as llguidance's greedy tokenizer does. Of bytes that are not UTF-8
        llama_tokenize is not asked: where they spell a code point above U+10FFFF llama.cpp ends
        the process (``unicode_cpt_to_utf8`` throws through the C API).

        Raises:
            UnavailableError: the vocabulary cannot spell the text.
        """
        if not text:
            return np.empty(0, np.uint32)
        if not _is_utf8(text):
            return self._longest_first(text)
        tokens = self.tokenize(text)
        if self.spell(tokens) == text:
            return tokens
        sentinel = self.sentinel
        if sentinel is not None:
            head = self.tokenize(sentinel)
            tokens = self.tokenize(sentinel + text)
            if np.array_equal(tokens[: len(head)], head):
                tokens = tokens[len(head) :]
                if self.spell(tokens) == text:
                    return tokens
        return self._longest_first(text)

    def _longest_first(self, text: bytes) -> TokenArray:
        by_bytes, longest = self._by_bytes
        tokens, at = [], 0
        while at < len(text):
            for end in range(min(at + longest, len(text)), at, -1):
                token = by_bytes.get(text[at:end])
                if token is not None:
                    tokens.append(token)
                    at = end
                    break
            else:
                raise UnavailableError(
                    f"vocab {self.name} has no token for byte {at} of the text ({text[at]:#04x})"
                )
        return np.array(tokens, np.uint32)

    @cached_property
    def _by_bytes(self) -> tuple[dict[bytes, int], int]:
        table = self.table("token_to_piece")
        found: dict[bytes, int] = {}
        for token, data in enumerate(table.tokens):
            if data and not table.marked[token]:
                found.setdefault(data, token)
        return found, max(map(len, found), default=0)

    def byte_token(self, byte: int) -> int | None:
        """Return the token whose real bytes are this one byte, None where there is none."""
        return self._by_bytes[0].get(bytes([byte]))

    @cached_property
    def is_byte_exact(self) -> bool:
        """Whether llama_tokenize returns exactly the bytes of the probes.

        The probes are a SentencePiece prefix, white space inside, and a newline. Any failure counts
        as not exact.
        """
        try:
            return all(self.spell(self.tokenize(p, parse_special=True)) == p for p in PROBES)
        except VocabError:
            return False

    @cached_property
    def sentinel(self) -> bytes | None:
        """A byte that stands in no token but its own, so that no token spans it; else None."""
        table = self.table("token_to_piece")
        single = {data for data in table.tokens if len(data) == 1}
        inner = np.zeros(256, bool)
        starts = np.cumsum(table.lens, dtype=np.int64) - table.lens
        alone = np.zeros(len(table.data), bool)
        alone[starts[table.lens == 1]] = True
        inner[table.data[~alone]] = True
        for value in (*range(1, 9), *range(14, 32)):
            candidate = bytes([value])
            if candidate in single and not inner[value]:
                return candidate
        return None


PROBES = (b"The", b"a b", b"1\n2")


def open_vocab(name: str, root: Path | None = None) -> Vocab:
    """Open a vocabulary of the catalogue, or any GGUF by path.

    Raises:
        UnknownNameError: neither the catalogue nor the file system knows the name.
        UnavailableError: it is in the catalogue and not fetched.
        VocabError: the file is altered, truncated, or holds no vocabulary.
    """
    entries = catalogue.vocabs(root)
    entry = entries.get(name)
    if entry is None:
        if catalogue.is_path(name):
            path = Path(name)
            _check_head(path)
            return Vocab(path.stem, path, files.sha256(path, error=VocabError))
        raise UnknownNameError("vocab", name, entries)
    if not entry.here:
        raise catalogue.not_fetched(name)
    found = files.sha256(entry.path, error=VocabError)
    if found != entry.sha256:
        raise VocabError(
            f"{entry.path} is altered or truncated (sha256 {found[:12]}…, recorded "
            f"{entry.sha256[:12]}…); remove it and run: llgbench vocab fetch"
        )
    vocab = Vocab(name, entry.path, found)
    if vocab.n_tokens != entry.tokens:
        raise VocabError(f"{entry.path}: {vocab.n_tokens} tokens, recorded are {entry.tokens}")
    return vocab


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_head(path: Path) -> None:
    """Refuse what cannot be a GGUF file of this machine, before llama.cpp reads it."""
    head = files.read_head(path, 8, error=VocabError)
    if head[:4] != b"GGUF":
        raise VocabError(f"{path}: not a GGUF file (it begins with {head[:4]!r})")
    if len(head) < 8:
        raise VocabError(f"{path}: the file is cut short")
    if int.from_bytes(head[4:8], sys.byteorder) > 0xFFFF:
        raise VocabError(f"{path}: a GGUF file of the other byte order")
