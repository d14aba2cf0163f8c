"""Engines and their handles, in one module since each of the three keeps the one before alive.

An engine is a shared library with llguidance's C API, loaded by path; it lives as long as the
process. A :class:`Tokenizer` belongs to an engine, a :class:`Matcher` to a tokenizer; each owns one
handle, has ``close()`` and is a context manager.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llgbench import files
from llgbench._native import ffi, lib
from llgbench.engines import store
from llgbench.engines.elf import fault
from llgbench.engines.handle import Handle
from llgbench.errors import EngineError, GrammarError
from llgbench.inputs.variant import FALLBACK_OPTIONS

# The ability is proven by behaviour: a lexer without the fallback rejects this text, whatever
# options it is given, because unknown options are ignored in silence.
_PROBE_GRAMMAR = 'start: STEM SUFFIX\nSTEM: "list" | "listen"\nSUFFIX: "ed"\n'
_PROBE_TEXT = b"listed"

INVALID_TOKEN = 0xFFFFFFFF

# The first release with the functions of LlgMatcher.
OLDEST = "0.7.10"

TokenArray = npt.NDArray[np.uint32]
MaskArray = npt.NDArray[np.uint32]


class Engine:
    """One shared library that exports llguidance's C API.

    Attributes:
        path: the library, resolved.
        api: the functions, as ``lb_engine *`` of csrc/llgbench.h.
    """

    def __init__(self, path: Path) -> None:
        """Load the library; use :func:`load`, which keeps one object a path.

        Raises:
            EngineError: there is no such file, it is for another machine, or it lacks a function.
        """
        self.path = path
        self.api = ffi.new("lb_engine *")
        error = ffi.new("char[]", 1024)
        if not os.path.isfile(path):
            raise EngineError(f"{path}: no such library")
        why = fault(path)
        if why is not None:
            raise EngineError(f"{path}: cannot serve as an engine: {why}")
        if lib.lb_engine_open(os.fsencode(path), self.api, error, len(error)) != 0:
            why = os.fsdecode(ffi.string(error)).removeprefix(f"{path}: ")
            if why.startswith("it has no ") and self.symbol("llg_new_tokenizer") is not None:
                lacks = why.removeprefix("it has no ").partition(",")[0]
                why = f"it has no {lacks}, which llguidance has since {OLDEST}; use a newer one"
            raise EngineError(f"{path}: cannot serve as an engine: {why}")

    @cached_property
    def version(self) -> str:
        """llguidance's own version string (``llg_get_version``), such as ``llguidance@1.9.1 …``.

        Empty where the library does not say: releases before 1.7.5 have no such function.
        """
        given = ffi.NULL if self.api.get_version == ffi.NULL else self.api.get_version()
        return "" if given == ffi.NULL else str(ffi.string(given).decode(errors="replace"))

    @cached_property
    def release(self) -> str:
        """The llguidance release, such as ``1.9.1``.

        From the version string; where there is none, from what lies beside the library: the note
        of a library in the cache, or the metadata of the installed package. Else ``unknown``.
        """
        for word in self.version.replace(",", " ").split():
            if word.startswith("llguidance@"):
                return word.removeprefix("llguidance@")
        return self.version or store.release_of(self.path) or "unknown"

    @cached_property
    def sha256(self) -> str:
        """The library's sha256, in hex."""
        return files.sha256(self.path, error=EngineError)

    @cached_property
    def fallback_option(self) -> str | None:
        """The grammar option that turns the greedy lexeme fallback on; None where it has none.

        Found by what the engine does with ``listed``, never by its name or version.
        """
        with byte_tokenizer(self) as tokenizer:
            for option in FALLBACK_OPTIONS:
                grammar = f'%llguidance {{"no_forcing": true, "{option}": true}}\n{_PROBE_GRAMMAR}'
                try:
                    with tokenizer.matcher(grammar) as matcher:
                        if matcher.consume_all(_PROBE_TEXT) and matcher.is_accepting():
                            return option
                except GrammarError:
                    continue
        return None

    def symbol(self, name: str) -> Any:
        """Return the address of an optional export as ``void *``, or None where there is none."""
        address = lib.lb_symbol(os.fsencode(self.path), name.encode())
        return None if address == ffi.NULL else address

    def __repr__(self) -> str:
        return f"Engine({str(self.path)!r})"


@cache
def _load_resolved(path: Path) -> Engine:
    # Where these are set, Rust captures a backtrace with every error, also those that llguidance
    # makes and drops where a text ends: some 36,000 instructions that a server does not spend.
    for name in ("RUST_BACKTRACE", "RUST_LIB_BACKTRACE"):
        os.environ.pop(name, None)
    return Engine(path)


def load(path: Path | str) -> Engine:
    """Return the engine of a library; one object a library, loaded once a process.

    Takes ``RUST_BACKTRACE`` and ``RUST_LIB_BACKTRACE`` out of the environment of this process.
    """
    return _load_resolved(Path(os.path.realpath(path)))


class Tokenizer(Handle):
    """A tokenizer handle of one engine.

    Attributes:
        engine: the engine it belongs to.
        n_tokens: size of the vocabulary.
        eos: the end token, or INVALID_TOKEN.
        build_ns: time inside ``llg_new_tokenizer``.
        forces: whether llguidance may force bytes (it has a tokenize_fn it takes for canonical).
    """

    def __init__(
        self,
        engine: Engine,
        lens: TokenArray,
        data: npt.NDArray[np.uint8],
        eos: int,
        tokenize: Any = None,
    ) -> None:
        """Build a tokenizer, as llama.cpp's common/llguidance.cpp does.

        Args:
            engine: where it is built.
            lens: bytes of each token, shape (n_tokens,), uint32.
            data: all token bytes one after another, uint8; special tokens begin with 0xff.
            eos: the end token, or INVALID_TOKEN.
            tokenize: ``lb_tokenize_context *`` for the native tokenize_fn; None makes llguidance
                tokenize greedily (``use_approximate_greedy_tokenize_fn``) and force no bytes.

        Raises:
            EngineError: the engine refuses.
        """
        self.engine = engine
        self.n_tokens = len(lens)
        self.eos = eos
        self.forces = tokenize is not None
        self._tokenize = tokenize  # the engine calls back into it for as long as it lives
        init = ffi.new("lb_tokenizer_init *")
        init.vocab_size = self.n_tokens
        init.tok_eos = eos
        init.token_lens = ffi.from_buffer("uint32_t[]", lens)
        init.token_bytes = ffi.from_buffer("uint8_t[]", data)
        init.tokenize_assumes_string = True
        if tokenize is None:
            init.use_approximate_greedy_tokenize_fn = True
        else:
            init.tokenize_fn = lib.lb_tokenize_pointer()
            init.tokenize_user_data = tokenize
        error = ffi.new("char[]", 1024)
        result = ffi.new("LlgTokenizer **")
        self.build_ns = int(lib.lb_timed_new_tokenizer(engine.api, init, error, len(error), result))
        if result[0] == ffi.NULL:
            raise EngineError(
                f"{engine.path}: no tokenizer: {ffi.string(error).decode(errors='replace')}"
            )
        self._pointer = result[0]

    @property
    def mask_words(self) -> int:
        """Words of 32 bits in a mask over this vocabulary."""
        return (self.n_tokens + 31) // 32

    def _free(self, pointer: Any) -> None:
        self.engine.api.free_tokenizer(pointer)

    def matcher(self, grammar: str, kind: str = "lark") -> Matcher:
        """Compile a grammar.

        Raises:
            GrammarError: it does not compile; the message is llguidance's.
        """
        return Matcher(self, grammar, kind)


def _c_string(grammar: str) -> bytes:
    """Return a grammar for C; refuse what C would read differently."""
    try:
        data = grammar.encode()
    except UnicodeEncodeError as error:
        raise GrammarError(f"the grammar is not UTF-8: {error.reason}") from None
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise GrammarError(f"the grammar holds a NUL byte, in line {line}")
    return data


class Matcher(Handle):
    """A matcher handle: one grammar, one state.

    Attributes:
        tokenizer: kept alive for as long as the matcher.
        compile_ns: time inside ``llg_new_matcher``; 0 for a clone.
    """

    def __init__(self, tokenizer: Tokenizer, grammar: str, kind: str = "lark") -> None:
        """Compile a grammar; see :meth:`Tokenizer.matcher`.

        Raises:
            EngineError: the engine gives no matcher, or one whose masks have another size.
        """
        self.tokenizer = tokenizer
        self._api = tokenizer.engine.api
        init = ffi.new("lb_constraint_init *")
        self._api.constraint_init_set_defaults(init, tokenizer.pointer)
        init.log_buffer_level = 0
        init.log_stderr_level = 0
        data = ffi.new("char[]", _c_string(grammar))
        result = ffi.new("LlgMatcher **")
        self.compile_ns = int(
            lib.lb_timed_new_matcher(self._api, init, kind.encode(), data, result)
        )
        if result[0] == ffi.NULL:
            raise EngineError(f"{tokenizer.engine.path}: llg_new_matcher returns NULL")
        self._pointer = result[0]
        error = self.error()
        if error is not None:
            self.close()
            raise GrammarError(error)
        # Whoever reads a mask reads `tokenizer.mask_words`; of another size it is no mask.
        size = int(self._api.matcher_get_mask_byte_size(self.pointer))
        if size != 4 * tokenizer.mask_words:
            self.close()
            raise EngineError(
                f"{tokenizer.engine.path}: its masks have {size} bytes, where {tokenizer.n_tokens} "
                f"tokens need {4 * tokenizer.mask_words}"
            )

    def _free(self, pointer: Any) -> None:
        self._api.free_matcher(pointer)

    def clone(self) -> Matcher:
        """Return an independent matcher in the same state.

        Raises:
            EngineError: the engine gives none.
        """
        other = Matcher.__new__(Matcher)
        other.tokenizer, other._api, other.compile_ns = self.tokenizer, self._api, 0
        pointer = self._api.clone_matcher(self.pointer)
        if pointer == ffi.NULL:
            raise EngineError(f"{self.tokenizer.engine.path}: llg_clone_matcher returns NULL")
        other._pointer = pointer
        return other

    def error(self) -> str | None:
        """Return llguidance's message where the matcher is in its error state."""
        message = self._api.matcher_get_error(self.pointer)
        return None if message == ffi.NULL else str(ffi.string(message).decode(errors="replace"))

    def mask(self) -> MaskArray | None:
        """Compute the mask of this state.

        Returns:
            A copy, shape (ceil(n_tokens / 32),), uint32, bit ``t % 32`` of word ``t // 32`` set
            where token ``t`` is allowed; None where llguidance reports an error.
        """
        if self._api.matcher_compute_mask(self.pointer) != 0:
            return None
        mask = self._api.matcher_get_mask(self.pointer)
        if mask == ffi.NULL:
            return None
        words = ffi.buffer(mask, 4 * self.tokenizer.mask_words)
        return np.frombuffer(words, dtype=np.uint32).copy()

    def allowed(self) -> npt.NDArray[np.int64] | None:
        """Return the ids of the tokens allowed here, in order; None on an error."""
        mask = self.mask()
        if mask is None:
            return None
        return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))

    def consume(self, token: int) -> bool:
        """Consume a token; False where llguidance reports an error (its state is then spent)."""
        return int(self._api.matcher_consume_token(self.pointer, token)) == 0

    def consume_all(self, tokens: Sequence[int]) -> bool:
        """Consume tokens one after another for as long as each is valid; True if all were."""
        for token in tokens:
            if self.validate([token]) != 1 or not self.consume(token):
                return False
        return True

    def validate(self, tokens: Sequence[int]) -> int:
        """Return how many of the tokens could be consumed from here; -1 on an error."""
        array = ffi.new("uint32_t[]", [int(t) for t in tokens])
        return int(self._api.matcher_validate_tokens(self.pointer, array, len(tokens)))

    def forced(self) -> list[int]:
        """Return the tokens llguidance would force here (``llg_matcher_compute_ff_tokens``)."""
        room = 1024
        output = ffi.new("uint32_t[]", room)
        n = self._api.matcher_compute_ff_tokens(self.pointer, output, room)
        return [int(output[i]) for i in range(min(max(n, 0), room))]

    def rollback(self, n: int) -> bool:
        """Take the last ``n`` tokens back; False on an error."""
        return int(self._api.matcher_rollback(self.pointer, n)) == 0

    def reset(self) -> bool:
        """Return to the start, lexer states kept; False from the error state."""
        return int(self._api.matcher_reset(self.pointer)) == 0

    def is_accepting(self) -> bool:
        """Whether the text so far is complete."""
        return bool(self._api.matcher_is_accepting(self.pointer))

    def is_stopped(self) -> bool:
        """Whether the matcher has finished, by the end of the grammar or by an error."""
        return bool(self._api.matcher_is_stopped(self.pointer))


def byte_tokenizer(engine: Engine, special_tokens: Sequence[str] = ()) -> Tokenizer:
    """Build a tokenizer of 256 single bytes, token id = byte, and an end token 256.

    It shows what a grammar accepts apart from any vocabulary, byte by byte.

    Args:
        engine: where it is built.
        special_tokens: names of special tokens, which get the ids from 257 on.
    """
    special = [b"\xff" + name.encode() for name in ("<end>", *special_tokens)]
    lens = np.array([1] * 256 + [len(token) for token in special], np.uint32)
    data = np.frombuffer(bytes(range(256)) + b"".join(special), np.uint8)
    return Tokenizer(engine, lens, data, eos=256)
