"""The adapter: every engine as one table of C functions, and the handles that it gives out.

A :class:`Peer` is an engine, a :class:`Vocabulary` belongs to it, a :class:`Compiled` grammar to a
vocabulary, a :class:`PeerMatcher` to a grammar. Each keeps alive what its handle points to.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from llgbench._native import ffi, lib
from llgbench.engines import peers, registry
from llgbench.engines.engine import INVALID_TOKEN, MaskArray, TokenArray
from llgbench.engines.handle import Handle
from llgbench.engines.peers import PeerSpec
from llgbench.errors import EngineError, GrammarError
from llgbench.files import one_line
from llgbench.inputs import variant
from llgbench.llama import bridge, gbnf
from llgbench.llama.vocab import Vocab
from llgbench.measure.replay import STEP, EmptyStep, End, Replay
from llgbench.peers.grammars import Source, WhiteSpace

_ERROR = 2048


class Peer:
    """An engine behind the adapter.

    Attributes:
        name: as it was asked for.
        release: of what, in words.
        spec: which engine; None for llguidance.
        table: ``lb_peer *``.
    """

    def __init__(self, name: str, release: str, spec: PeerSpec | None, library: Any) -> None:
        """Begin with an empty table; use :func:`load`. ``library`` is kept alive."""
        self.name, self.release, self.spec = name, release, spec
        self.library = library
        self.table = ffi.new("lb_peer *")

    def empty_step(self) -> EmptyStep:
        """Measure the adapter's own share of a step: the same code on an engine that does nothing.

        Raises:
            EngineError: the engine's library does not give what that takes.
        """
        return _empty_step(*self._empty())

    def empty_instructions(self) -> float:
        """Count the instructions of such a step; NaN where the system does not let processes trace.

        Raises:
            EngineError: as :meth:`empty_step`.
        """
        table, handle = self._empty()
        few, many = (lib.lb_peer_empty_instructions(table, handle, n) for n in (32, 96))
        return (many - few) / 64 if few > 0 and many > 0 else float("nan")

    def _empty(self) -> tuple[Any, Any]:
        """Return the adapter's table and a matcher that does nothing."""
        table, handle = ffi.new("lb_peer *"), ffi.new("void **")
        status = 0
        if self.spec is not None and self.spec.kind == "xgrammar":
            status = lib.lb_xgrammar_empty(self.library[0], table, handle)
        elif self.spec is not None and self.spec.kind == "gbnf":
            status = lib.lb_gbnf_empty(self.library[0], table, handle)
        else:
            lib.lb_peer_empty(table, handle)
        if status != 0:
            raise EngineError(f"{self.name}: the adapter's own step cannot be measured")
        return table, handle[0]


def load(
    name: str, vocab: Vocab, white_space: WhiteSpace, *, exact: bool = False, apart: bool = False
) -> Peer:
    """Load an engine in this process; of xgrammar one, unless all are loaded apart.

    Args:
        name: its specification.
        vocab: which it will be asked for; llama.cpp's grammars are tied to it.
        white_space: which xgrammar is told.
        apart: xgrammar gets a C library of its own, and so does not show in the heap's books.
        exact: llguidance gets no tokenizer to force bytes by, so that its masks are the truth.

    Raises:
        LlgbenchError: it is not here, or cannot serve.
    """
    spec = peers.parse(name)
    error = ffi.new("char[]", _ERROR)
    if spec is None:
        engine = registry.get(name)
        library = ffi.new("lb_peer_llguidance *")
        library.engine = engine.api
        bridged = variant.get("greedy_tokenize")
        context = None if exact else bridge.context(vocab, bridged)
        if context is not None:
            library.tokenize = lib.lb_tokenize_pointer()
            library.user_data = context
        peer = Peer(name, f"llguidance {engine.release}", None, (library, context))
        lib.lb_peer_llguidance_table(library, peer.table)
        return peer
    found = peers.locate(spec)
    paths = [os.fsencode(path) for path in found.paths]
    peer = Peer(name, found.release, spec, None)
    match spec.kind:
        case "xgrammar":
            options = ffi.new("lb_xgrammar_options *")
            after = "" if white_space == "compact" else " "
            comma, colon = (ffi.new("char[]", f"{c}{after}".encode()) for c in ",:")
            options.lazy, options.apart = spec.lazy, apart
            options.any_whitespace = white_space == "flexible"
            options.comma, options.colon = comma, colon
            opened = lib.lb_xgrammar_open(*paths, options, error, len(error))
            peer.library = (opened, comma, colon)
            if opened != ffi.NULL:
                lib.lb_xgrammar_table(opened, peer.table)
        case "gbnf":
            opened = lib.lb_gbnf_open(os.fsencode(gbnf.library()), vocab.vocab, error, len(error))
            peer.library = (opened,)
            if opened != ffi.NULL:
                lib.lb_gbnf_table(opened, peer.table)
        case _:
            opened = lib.lb_peer_open(paths[0], peer.table, error, len(error)) == 0 or ffi.NULL
    if opened == ffi.NULL:
        raise EngineError(f"{name} cannot serve: {_words(error)}")
    return peer


class _Part(Handle):
    """A handle of a peer, and the time it took to make."""

    def __init__(self, peer: Peer, pointer: Any, ns: int) -> None:
        self.peer, self._pointer, self.ns = peer, pointer, ns


class Vocabulary(_Part):
    """A vocabulary as an engine holds it; ``ns`` is the time to make it.

    Attributes:
        n_tokens: its size.
        eos: the end token, or INVALID_TOKEN.
    """

    def __init__(self, peer: Peer, vocab: Vocab) -> None:
        """Hand a vocabulary to an engine, with the real bytes of its tokens.

        Raises:
            EngineError: it refuses them.
        """
        self._table = vocab.table("token_to_piece")  # some engines keep no copy
        self._views = (self._table.lens, self._table.data, self._table.marked)
        given = ffi.new("lb_peer_vocab *")
        given.n_tokens, given.eos = vocab.n_tokens, vocab.eos
        given.lens = ffi.from_buffer("uint32_t[]", self._views[0])
        given.bytes = ffi.from_buffer("uint8_t[]", self._views[1])
        given.marked = ffi.from_buffer("uint8_t[]", self._views[2])
        error, result = ffi.new("char[]", _ERROR), ffi.new("void **")
        ns = lib.lb_peer_timed_vocabulary(peer.table, given, error, len(error), result)
        if result[0] == ffi.NULL:
            raise EngineError(f"{peer.name} refuses the vocabulary: {_words(error)}")
        super().__init__(peer, result[0], int(ns))
        self.n_tokens, self.eos = vocab.n_tokens, vocab.eos

    @property
    def words(self) -> int:
        """Words of 32 bits in a mask."""
        return (self.n_tokens + 31) // 32

    def compile(self, source: Source) -> Compiled:
        """Compile a grammar.

        Raises:
            GrammarError: the engine refuses it, in its own words.
        """
        return Compiled(self, source)

    def _free(self, pointer: Any) -> None:
        self.peer.table.free_vocabulary(pointer)


class Compiled(_Part):
    """A compiled grammar; ``ns`` is the time to compile it.

    Attributes:
        cpu_s: the CPU time of that, of all threads.
    """

    def __init__(self, vocabulary: Vocabulary, source: Source) -> None:
        """See :meth:`Vocabulary.compile`."""
        self.vocabulary = vocabulary
        if "\0" in source.text:
            raise GrammarError("the grammar holds a NUL byte")
        text = ffi.new("char[]", source.text.encode())
        error, result = ffi.new("char[]", _ERROR), ffi.new("void **")
        begin = time.process_time()
        ns = lib.lb_peer_timed_compile(
            vocabulary.peer.table, vocabulary.pointer, source.kind, text, error, len(error), result
        )
        self.cpu_s = time.process_time() - begin
        if result[0] == ffi.NULL:
            raise GrammarError(one_line(_words(error)))
        super().__init__(vocabulary.peer, result[0], int(ns))

    def start(self) -> PeerMatcher:
        """Return a matcher at the beginning of a text.

        Raises:
            EngineError: the engine gives none.
        """
        error, result = ffi.new("char[]", _ERROR), ffi.new("void **")
        ns = lib.lb_peer_timed_start(self.peer.table, self.pointer, error, len(error), result)
        if result[0] == ffi.NULL:
            raise EngineError(f"{self.peer.name} gives no matcher: {_words(error)}")
        return PeerMatcher(self, result[0], int(ns))

    @property
    def memory(self) -> int | None:
        """Bytes of the compiled grammar, where the engine says it."""
        table = self.peer.table
        return None if table.memory == ffi.NULL else int(table.memory(self.pointer))

    def _free(self, pointer: Any) -> None:
        self.peer.table.free_compiled(pointer)


class PeerMatcher(_Part):
    """One state of a grammar; ``ns`` is the time to make it."""

    def __init__(self, compiled: Compiled, pointer: Any, ns: int) -> None:
        """See :meth:`Compiled.start`."""
        self.compiled = compiled
        super().__init__(compiled.peer, pointer, ns)

    def _free(self, pointer: Any) -> None:
        self.peer.table.free_matcher(pointer)

    def reset(self) -> bool:
        """Go back to the beginning; return whether the engine can."""
        table = self.peer.table
        return bool(table.reset != ffi.NULL and table.reset(self.pointer) == 0)

    def fork(self) -> PeerMatcher | None:
        """Return an independent matcher in the same state; None where the engine has none."""
        table = self.peer.table
        pointer = ffi.NULL if table.fork == ffi.NULL else table.fork(self.pointer)
        return None if pointer == ffi.NULL else PeerMatcher(self.compiled, pointer, 0)

    def mask(self) -> MaskArray | None:
        """Return a copy of the mask of this state, shape (words,), uint32; None on an error."""
        table, words = self.peer.table, self.compiled.vocabulary.words
        if table.prepare != ffi.NULL:
            table.prepare(self.pointer)
        if table.mask(self.pointer) != 0:
            return None
        return np.frombuffer(ffi.buffer(table.finish(self.pointer), 4 * words), np.uint32).copy()

    def accept(self, token: int) -> bool:
        """Consume a token that the mask allows; return whether the engine took it."""
        return int(self.peer.table.accept(self.pointer, token)) == 0

    def complete(self) -> bool:
        """Whether the text may end here."""
        return bool(self.peer.table.complete(self.pointer))

    def replay(self, tokens: TokenArray, *, facts: bool = False, reset: bool = False) -> Replay:
        """Drive the matcher along a trace, every step timed; see measure.replay.replay."""
        tokens = np.ascontiguousarray(tokens, np.uint32)
        steps = np.zeros(len(tokens), STEP)
        result = ffi.new("lb_replay_result *")
        lib.lb_peer_replay(
            self.peer.table, self.pointer, self.compiled.vocabulary.words,
            ffi.from_buffer("uint32_t[]", tokens), len(tokens),
            (lib.LB_FACTS if facts else 0) | (lib.LB_RESET if reset else 0),
            ffi.from_buffer("lb_step[]", steps, require_writable=True), result,
        )  # fmt: skip
        return Replay(
            steps[: result.n_steps], End(result.outcome), int(result.inside_ns),
            int(result.wall_ns),
        )  # fmt: skip


def with_end(tokens: TokenArray, eos: int) -> TokenArray:
    """Return a trace with the vocabulary's end token, where it has one, as its last step."""
    return tokens if eos == INVALID_TOKEN else np.append(tokens, np.uint32(eos))


def _words(error: Any) -> str:
    return str(ffi.string(error).decode(errors="replace")) or "no reason given"


def _empty_step(table: Any, handle: Any, n: int = 20_000, rounds: int = 7) -> EmptyStep:
    tokens, steps = np.zeros(n, np.uint32), np.zeros(n, STEP)
    result = ffi.new("lb_replay_result *")
    best: list[EmptyStep] = []
    for _ in range(rounds):
        lib.lb_peer_replay(
            table, handle, 1, ffi.from_buffer("uint32_t[]", tokens), n, 0,
            ffi.from_buffer("lb_step[]", steps, require_writable=True), result,
        )  # fmt: skip
        read = float(np.median(steps["op_ns"] + steps["consume_ns"]))
        best.append(EmptyStep(read, result.wall_ns / n))
    return min(best, key=lambda step: step.wall_ns)
