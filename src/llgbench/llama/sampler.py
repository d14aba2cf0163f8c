"""llguidance as a llama_sampler, for any chain of llama-cpp-python's.

It does what llama.cpp's own common/llguidance.cpp does, which Python wheels do not contain: mask,
then minus infinity for what is not allowed; where a mask fails the grammar is dropped and
generation continues without it. Here that is counted, and never silent::

    sampler = GrammarSampler(tokenizer, grammar)
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    sampler.add_to(chain)  # the chain owns it now
    llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_greedy())
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np

from llgbench._native import ffi, lib
from llgbench.engines.engine import MaskArray, Tokenizer
from llgbench.engines.handle import Handle
from llgbench.errors import UnavailableError
from llgbench.llama.api import llama

# What the native samplers point to. Clones may outlive the Python object, and a chain may free
# them at any time, so what they need stays here until the last of them is gone.
_kept: list[tuple[Any, Tokenizer]] = []

# Structures that cross between llama-cpp-python's ctypes and the native code, by name in both.
_SHARED = (
    "llama_sampler_i", "llama_sampler", "llama_token_data", "llama_token_data_array", "llama_batch",
)  # fmt: skip


def layout_differences() -> list[str]:
    """Return where the native structures differ from llama-cpp-python's: none, it is hoped."""
    from llama_cpp import llama_cpp as c

    found = []
    for name in _SHARED:
        theirs = getattr(c, name)
        ours = dict(ffi.typeof(f"struct {name}" if name == "llama_sampler" else name).fields)
        if list(ours) != [field[0] for field in theirs._fields_]:
            found.append(f"{name}: fields {', '.join(field[0] for field in theirs._fields_)}")
            continue
        found += [
            f"{name}.{field} at {getattr(theirs, field).offset}, not {ours[field].offset}"
            for field in ours
            if getattr(theirs, field).offset != ours[field].offset
        ]
        size = ffi.sizeof(f"struct {name}" if name == "llama_sampler" else name)
        if ctypes.sizeof(theirs) != size:
            found.append(f"{name}: {ctypes.sizeof(theirs)} bytes, not {size}")
    return found


@lru_cache(maxsize=1)
def decoder() -> Any:
    """Return llama.cpp's functions to sample and decode, ``lb_decoder *``.

    Raises:
        UnavailableError: llama-cpp-python is not installed, or of another layout.
    """
    llama()  # starts the backend and takes the log
    from llama_cpp import llama_cpp as c

    different = layout_differences()
    if different:
        raise UnavailableError(
            f"this llama-cpp-python is not the one llgbench was written for: {different[0]}"
        )
    api = ffi.new("lb_decoder *")
    error = ffi.new("char[]", 1024)
    if lib.lb_decoder_open(os.fsencode(c._lib._name), api, error, len(error)) != 0:
        raise UnavailableError(f"llama.cpp's library is unusable: {ffi.string(error).decode()}")
    return api


class GrammarSampler(Handle):
    """A grammar as a native ``llama_sampler``.

    The vocab behind the tokenizer must outlive it, every clone, and every chain that holds it.

    Attributes:
        compile_ns: time inside ``llg_new_matcher``.
    """

    def __init__(self, tokenizer: Tokenizer, grammar: str, kind: str = "lark") -> None:
        """Compile the grammar.

        Raises:
            GrammarError: it does not compile.
        """
        _kept[:] = [kept for kept in _kept if kept[0].live > 0]
        matcher = tokenizer.matcher(grammar, kind)
        self.compile_ns = matcher.compile_ns
        self._grammar = ffi.new("lb_grammar *")
        self._grammar.engine = tokenizer.engine.api
        self._grammar.llama = decoder()
        self._pointer = lib.lb_sampler_new(self._grammar, matcher.pointer)
        matcher._pointer = None  # the sampler owns it
        _kept.append((self._grammar, tokenizer))

    def _free(self, pointer: Any) -> None:
        decoder().sampler_free(pointer)

    @property
    def address(self) -> int:
        """The sampler's address, for llama-cpp-python's functions."""
        return int(ffi.cast("uintptr_t", self.pointer))

    def add_to(self, chain: Any) -> None:
        """Append the sampler to one of llama-cpp-python's chains, which owns it from now on.

        The counts stay readable here; everything else is the chain's.

        Args:
            chain: what ``llama_sampler_chain_init`` returned.
        """
        from llama_cpp import llama_cpp as c

        c.llama_sampler_chain_add(chain, ctypes.cast(self.address, c.llama_sampler_p_ctypes))
        self._pointer = None

    def put_before(self, samplers: Any) -> None:
        """Put the sampler in front of a ``LlamaSampler`` of llama-cpp-python, which owns it now.

        The chain is turned within itself, not moved into another: samplers that are written in
        Python (a logits_processor) lie in Python's memory, which the ``LlamaSampler`` keeps, and
        which it takes out of its chain, by their places, before llama.cpp frees the rest.

        Args:
            samplers: ``llama_cpp._internals.LlamaSampler``.
        """
        from llama_cpp import llama_cpp as c

        chain = samplers.sampler
        others = c.llama_sampler_chain_n(chain)
        self.add_to(chain)
        for _ in range(others):
            c.llama_sampler_chain_add(chain, c.llama_sampler_chain_remove(chain, 0))
        samplers.custom_samplers = [(at + 1, kept) for at, kept in samplers.custom_samplers]

    @property
    def drops(self) -> int:
        """How often a mask failed and the grammar was dropped, clones included."""
        return int(self._grammar.drops)

    @property
    def errors(self) -> int:
        """How many tokens llguidance could not consume, clones included."""
        return int(self._grammar.errors)

    @property
    def error(self) -> str:
        """llguidance's first message, in one line; empty where there was none."""
        message = ffi.string(self._grammar.error).decode(errors="replace")
        # After these marks come dumps of the parser and of the stack.
        message = message.partition("<state>")[0].partition("<backtrace>")[0]
        return " ".join(message.split())

    @property
    def live(self) -> int:
        """How many native samplers of this grammar are not freed yet."""
        return int(self._grammar.live)


Selection = Literal["greedy", "dist", "common"]
SELECTIONS: tuple[Selection, ...] = get_args(Selection)


class Chain(Handle):
    """A ``llama_sampler_chain`` that chooses a token, without a grammar.

    ``greedy`` takes the likeliest; ``dist`` draws from all; ``common`` is llama.cpp's usual chain:
    top-k 40, top-p 0.95, min-p 0.05, temperature 0.8, then a draw.
    """

    def __init__(self, selection: Selection, seed: int = 0) -> None:
        """Build it with llama-cpp-python's own functions."""
        decoder()
        from llama_cpp import llama_cpp as c

        chain = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
        if selection == "common":
            c.llama_sampler_chain_add(chain, c.llama_sampler_init_top_k(40))
            c.llama_sampler_chain_add(chain, c.llama_sampler_init_top_p(0.95, 1))
            c.llama_sampler_chain_add(chain, c.llama_sampler_init_min_p(0.05, 1))
            c.llama_sampler_chain_add(chain, c.llama_sampler_init_temp(0.8))
        if selection == "greedy":
            c.llama_sampler_chain_add(chain, c.llama_sampler_init_greedy())
        else:
            c.llama_sampler_chain_add(chain, c.llama_sampler_init_dist(seed))
        address = ctypes.cast(chain, ctypes.c_void_p).value
        self._pointer = ffi.cast("llama_sampler *", address)

    def _free(self, pointer: Any) -> None:
        decoder().sampler_free(pointer)


def candidates(logits: Any) -> tuple[Any, Any]:
    """Return a ``llama_token_data_array *`` of logits in order of their ids, and its memory."""
    n = len(logits)
    data = ffi.new("llama_token_data[]", n)
    view = np.frombuffer(ffi.buffer(data), np.dtype([("id", "i4"), ("logit", "f4"), ("p", "f4")]))
    view["id"], view["logit"] = np.arange(n), logits
    return ffi.new("llama_token_data_array *", (data, n, -1, False)), view


@dataclass(frozen=True)
class ApplyTimes:
    """One mask applied over one array of candidates, medians in nanoseconds.

    Attributes:
        ours_ns: llgbench's pass.
        plain_ns: llama.cpp's loop over the same array.
        fill_ns: writing the array, which is what memory allows.
    """

    ours_ns: float
    plain_ns: float
    fill_ns: float


def compare_apply(mask: MaskArray, n_tokens: int, rounds: int = 200) -> ApplyTimes:
    """Apply a mask by llgbench's pass and by llama.cpp's loop, turn by turn.

    Args:
        mask: shape (ceil(n_tokens / 32),), uint32.
        n_tokens: candidates.
        rounds: of each.
    """
    times = [np.zeros(rounds, np.uint64) for _ in range(3)]
    lib.lb_compare_apply(
        ffi.from_buffer("uint32_t[]", mask), len(mask), n_tokens, rounds,
        *(ffi.from_buffer("uint64_t[]", t, require_writable=True) for t in times),
    )  # fmt: skip
    return ApplyTimes(*(float(np.median(t)) for t in times))
