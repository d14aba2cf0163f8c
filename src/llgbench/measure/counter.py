"""Counting jobs: what a process under callgrind does, as data, and the answers it needs.

A counted process has no Python and no llama.cpp (csrc/counter.c): the token table and the tokens to
replay are data, and so is what llama.cpp says where an engine asks its tokenize_fn. The answers
come from doing the very same job here first.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from llgbench import files
from llgbench._native import ffi, lib
from llgbench.engines.engine import Engine, TokenArray
from llgbench.errors import CompareError
from llgbench.inputs.variant import Variant
from llgbench.llama import bridge
from llgbench.llama.vocab import Vocab

MASK: int = lib.LB_PART_MASK
CONSUME: int = lib.LB_PART_CONSUME

PER_CALL: int = lib.LB_DUMP_CALL
PER_STEP: int = lib.LB_DUMP_STEP
PER_REPLAY: int = lib.LB_DUMP_REPLAY


@dataclass(frozen=True)
class OpenEngine:
    """Load a library; engines have numbers from 0, in order.

    Attributes:
        path: of the library.
    """

    path: Path

    def encode(self) -> bytes:
        """Return the step as csrc/count.c reads it; so in every step."""
        return _words(lib.LB_JOB_ENGINE) + _string(str(self.path))


@dataclass(frozen=True)
class MakeTokenizer:
    """Build a tokenizer; tokenizers have numbers from 0, in order.

    Attributes:
        engine: its number.
        lens: bytes of each token, shape (n_tokens,), uint32.
        data: all token bytes one after another, uint8.
        eos: the end token.
        source: which recorded tokenize_fn answers it; None where llguidance tokenizes greedily.
    """

    engine: int
    lens: TokenArray
    data: npt.NDArray[np.uint8]
    eos: int
    source: int | None

    def encode(self) -> bytes:
        """Return the step."""
        source = lib.LB_NONE if self.source is None else self.source
        head = _words(lib.LB_JOB_TOKENIZER, self.engine, self.eos, source)
        return head + _array(self.lens) + _block(self.data.tobytes())


@dataclass(frozen=True)
class SetThreshold:
    """Set a matcher's hidden parameter.

    Attributes:
        matcher: its number; of an engine that has the parameter.
        n: see fallback.states.set_threshold.
    """

    matcher: int
    n: int

    def encode(self) -> bytes:
        """Return the step."""
        return _words(lib.LB_JOB_THRESHOLD, self.matcher, self.n & 0xFFFFFFFF, self.n >> 32)


@dataclass(frozen=True)
class Compile:
    """Make a matcher.

    Attributes:
        matcher: its number, not in use.
        tokenizer: the number of its tokenizer.
        grammar: Lark.
        label: counted under this name and ``compile``; None where it is not counted.
    """

    matcher: int
    tokenizer: int
    grammar: str
    label: str | None = None

    def encode(self) -> bytes:
        """Return the step."""
        head = _words(lib.LB_JOB_COMPILE, self.matcher, self.tokenizer)
        return head + _string(self.grammar) + _string(self.label or "")


@dataclass(frozen=True)
class Replay:
    """Drive a matcher along tokens from its present state.

    Attributes:
        matcher: its number.
        tokens: shape (n,), uint32.
        parts: MASK, CONSUME or both.
        after: PER_CALL, PER_STEP or PER_REPLAY: when the count is taken, under the label and
            ``mask`` or ``consume``, ``step``, ``sum``.
        label: None where nothing is counted.
    """

    matcher: int
    tokens: TokenArray
    parts: int = MASK | CONSUME
    after: int = PER_CALL
    label: str | None = None

    def encode(self) -> bytes:
        """Return the step."""
        head = _words(lib.LB_JOB_REPLAY, self.matcher, self.parts, self.after)
        return head + _string(self.label or "") + _array(self.tokens)


@dataclass(frozen=True)
class Reset:
    """Return a matcher to its start, lexer states kept."""

    matcher: int

    def encode(self) -> bytes:
        """Return the step."""
        return _words(lib.LB_JOB_RESET, self.matcher)


@dataclass(frozen=True)
class Mask:
    """Compute the mask of a matcher's state, the one that it keeps dropped before.

    Attributes:
        matcher: its number; of an engine that can drop it.
        label: counted under this name and ``mask``.
    """

    matcher: int
    label: str

    def encode(self) -> bytes:
        """Return the step."""
        return _words(lib.LB_JOB_MASK, self.matcher) + _string(self.label)


@dataclass(frozen=True)
class Free:
    """Free a matcher."""

    matcher: int

    def encode(self) -> bytes:
        """Return the step."""
        return _words(lib.LB_JOB_FREE, self.matcher)


Step = OpenEngine | MakeTokenizer | SetThreshold | Compile | Replay | Reset | Mask | Free


@dataclass(frozen=True)
class Recorded:
    """A job with what a process needs to do it again, in two files.

    Attributes:
        engines: the libraries that it loads.
        job: file with the steps.
        recording: file with what tokenize_fn was asked and answered, and how far replays came.
        taken: how many tokens each step consumed.
        asked: how often tokenize_fn was called in each step.
    """

    engines: tuple[Path, ...]
    job: Path
    recording: Path
    taken: tuple[int, ...]
    asked: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data; the files stay where they are."""
        data: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return data

    @classmethod
    def from_json(cls, data: Any) -> Recorded:
        """Read back what :meth:`to_json` wrote."""
        return msgspec.convert(data, cls, dec_hook=lambda kind, text: kind(text))


class JobBuilder:
    """Collects the steps of a job, and what its engines may ask."""

    def __init__(self) -> None:
        """Begin with no step."""
        self.steps: list[Step] = []
        self._engines: dict[Path, int] = {}
        self._contexts: list[Any] = []
        self._sources: dict[tuple[Path, Variant], int | None] = {}
        self._tokenizers = 0

    def engine(self, engine: Engine) -> int:
        """Load an engine unless it is there; return its number."""
        if engine.path not in self._engines:
            self._engines[engine.path] = len(self._engines)
            self.steps.append(OpenEngine(engine.path))
        return self._engines[engine.path]

    def tokenizer(self, engine: Engine, vocab: Vocab, variant: Variant) -> int:
        """Build the tokenizer of a variant, as bridge.build does; return its number.

        The vocab must stay open until the job is recorded.
        """
        key = vocab.path, variant
        if key not in self._sources:
            context = bridge.context(vocab, variant)
            self._sources[key] = None if context is None else len(self._contexts)
            self._contexts += [] if context is None else [context]
        table = vocab.table(variant.token_bytes)
        self.steps.append(
            MakeTokenizer(
                self.engine(engine), table.lens, table.data, vocab.eos, self._sources[key]
            )
        )
        self._tokenizers += 1
        return self._tokenizers - 1

    def add(self, *steps: Step) -> None:
        """Append steps."""
        self.steps += steps

    def record(self, folder: Path) -> Recorded:
        """Do the job in this process, uncounted, and keep what tokenize_fn was asked.

        Args:
            folder: where the two files go; it must outlive the use of what is returned.

        Raises:
            CompareError: a grammar does not compile, a mask fails, an engine refuses.
        """
        job = encode_job(self.steps)
        recordings = [ffi.new("lb_recording *", {"context": c}) for c in self._contexts]
        sources = ffi.new("lb_tokenize_source[]", max(1, len(recordings)))
        for source, recording in zip(sources, recordings, strict=False):
            source.ask, source.user_data = lib.lb_record_pointer(), recording
        results = ffi.new("lb_count_result[]", max(1, len(self.steps)))
        error = ffi.new("char[]", 1024)
        try:
            status = lib.lb_count_run(
                ffi.from_buffer("uint8_t[]", job), len(job), sources, len(recordings), results,
                len(self.steps), error, len(error),
            )  # fmt: skip
            if status != 0:
                raise CompareError(files.one_line(ffi.string(error).decode(errors="replace")))
            if any(recording.failed for recording in recordings):
                raise CompareError("no memory for what tokenize_fn was asked")
            known = [_questions(bytes(ffi.buffer(r.data, r.size))) for r in recordings]
        finally:
            for recording in recordings:
                lib.lb_recording_free(recording)
        taken = tuple(int(results[i].taken) for i in range(len(self.steps)))
        asked = tuple(int(results[i].asked) for i in range(len(self.steps)))
        files.write(folder / "job", job, error=CompareError)
        files.write(folder / "recording", encode_recording(known, taken), error=CompareError)
        return Recorded(tuple(self._engines), folder / "job", folder / "recording", taken, asked)


def encode_job(steps: Sequence[Step]) -> bytes:
    """Return a job as csrc/count.c reads it."""
    return _words(lib.LB_JOB_VERSION, len(steps)) + b"".join(step.encode() for step in steps)


def encode_recording(known: Sequence[dict[bytes, bytes]], taken: Sequence[int]) -> bytes:
    """Return a recording as csrc/counter.c reads it.

    Args:
        known: of each source, the tokens (32-bit words) by the bytes that were asked about.
        taken: tokens consumed by each step of the job.
    """
    parts = [_words(lib.LB_JOB_VERSION, len(known))]
    for answers in known:
        parts.append(_words(len(answers)))
        for question in sorted(answers, key=lambda q: (len(q), q)):
            tokens = answers[question]
            parts += [_block(question), _words(len(tokens) // 4), tokens]
    return b"".join(parts) + _array(np.array(taken, np.uint32))


def _questions(data: bytes) -> dict[bytes, bytes]:
    """Return the tokens by question, of what an lb_recording holds."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        (n,) = struct.unpack_from("=I", data, at)
        question = data[at + 4 : at + 4 + n]
        at += 4 + n + -n % 4
        (n,) = struct.unpack_from("=I", data, at)
        found[question] = data[at + 4 : at + 4 + 4 * n]
        at += 4 + 4 * n
    return found


def _words(*values: int) -> bytes:
    return struct.pack(f"={len(values)}I", *values)


def _block(data: bytes) -> bytes:
    """Return length and bytes, filled up to whole words."""
    return _words(len(data)) + data + bytes(-len(data) % 4)


def _string(text: str) -> bytes:
    return _block(text.encode() + b"\0")


def _array(values: npt.NDArray[np.uint32]) -> bytes:
    return _words(len(values)) + np.ascontiguousarray(values, np.uint32).tobytes()
