"""Synthetic models: GGUF files of a known shape, random weights and a vocabulary's tokens."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llgbench import files, paths
from llgbench.errors import UnavailableError, UnknownNameError
from llgbench.llama.device import require_memory, size_text
from llgbench.llama.vocab import Vocab

# One block of ggml's Q8_0: 32 weights in 34 bytes.
_Q8_0 = np.dtype([("scale", "<f2"), ("weights", "i1", 32)])
_STRING, _ARRAY = 8, 9


# Raise it when the same shape and vocab would give another file.
_GENERATOR = 1


@dataclass(frozen=True)
class Shape:
    """The sizes of a transformer.

    Attributes:
        arch: llama.cpp's architecture.
        layers: blocks.
        width: of the residual stream.
        hidden: of the feed-forward network.
        heads: of attention.
        kv_heads: keys and values; fewer than heads where they share them.
        head: width of one head.
        tied: whether the output matrix is the embedding.
        rope_base: of the rotary positions.
    """

    arch: str
    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    tied: bool
    rope_base: float = 10_000.0

    def tensors(self, n_vocab: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield names and shapes, rows first; a vector is kept as float32, a matrix as Q8_0."""
        q, kv = self.heads * self.head, self.kv_heads * self.head
        yield "token_embd.weight", (n_vocab, self.width)
        for i in range(self.layers):
            yield f"blk.{i}.attn_norm.weight", (self.width,)
            yield f"blk.{i}.attn_q.weight", (q, self.width)
            yield f"blk.{i}.attn_k.weight", (kv, self.width)
            yield f"blk.{i}.attn_v.weight", (kv, self.width)
            yield f"blk.{i}.attn_output.weight", (self.width, q)
            yield f"blk.{i}.ffn_norm.weight", (self.width,)
            yield f"blk.{i}.ffn_gate.weight", (self.hidden, self.width)
            yield f"blk.{i}.ffn_up.weight", (self.hidden, self.width)
            yield f"blk.{i}.ffn_down.weight", (self.width, self.hidden)
        yield "output_norm.weight", (self.width,)
        if not self.tied:
            yield "output.weight", (n_vocab, self.width)

    def parameters(self, n_vocab: int) -> int:
        """Return how many weights there are."""
        return sum(int(np.prod(shape)) for _, shape in self.tensors(n_vocab))

    def file_bytes(self, n_vocab: int) -> int:
        """Return about how large the GGUF is; the vocabulary itself is small beside it."""
        return sum(_nbytes(shape) for _, shape in self.tensors(n_vocab)) + 64 * n_vocab


# The published models' sizes; nano is small enough that the grammar shows beside it.
SHAPES: dict[str, Shape] = {
    "nano": Shape("llama", 4, 256, 768, 8, 4, 32, tied=False),
    "tinyllama-1.1b": Shape("llama", 22, 2048, 5632, 32, 4, 64, tied=False),
    "llama-3.2-1b": Shape("llama", 16, 2048, 8192, 32, 8, 64, tied=True, rope_base=500_000.0),
    "gemma-2b-like": Shape("gemma", 18, 2048, 16384, 8, 1, 256, tied=True),
}


def shape(name: str) -> Shape:
    """Return a shape by name.

    Raises:
        UnknownNameError: there is none of that name.
    """
    try:
        return SHAPES[name]
    except KeyError:
        raise UnknownNameError("shape", name, SHAPES) from None


def synthetic_path(shape_name: str, vocab: Vocab) -> Path:
    """Return where the synthetic model of a shape and vocab is kept, made or not."""
    parts = [_GENERATOR, asdict(shape(shape_name)), vocab.sha256]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    return paths.cache() / "models" / f"synthetic-{shape_name}-{vocab.name}-{key}.gguf"


def synthesize(shape_name: str, vocab: Vocab) -> Path:
    """Make the synthetic model of a shape and vocab, once; return its file.

    The vocabulary is copied from the vocab's GGUF; the weights are random by a fixed seed.

    Raises:
        UnknownNameError: there is no such shape.
        UnavailableError: no room for it in memory or on the disk, or no ``gguf`` package.
    """
    path = synthetic_path(shape_name, vocab)
    if path.is_file():
        return path
    sizes = shape(shape_name)
    needed = sizes.file_bytes(vocab.n_tokens)
    require_memory(needed, f"shape {shape_name} on {vocab.name}")
    with files.folder(path.parent, error=UnavailableError):
        try:
            free = shutil.disk_usage(path.parent).free
            if needed > free:
                raise UnavailableError(
                    f"shape {shape_name} on {vocab.name} takes {size_text(needed)} in "
                    f"{path.parent}, where {size_text(free)} are free; choose a smaller --shape or "
                    f"set {paths.CACHE_VARIABLE}"
                )
            part = path.with_suffix(f".{os.getpid()}.part")
            try:
                _write(part, shape_name, sizes, vocab)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            raise UnavailableError(f"cannot write {path}: {error.strerror}") from None
    return path


def _write(path: Path, name: str, sizes: Shape, vocab: Vocab) -> None:
    try:
        from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
    except ImportError:
        raise UnavailableError(
            "synthetic models are made with the gguf package; run: pip install gguf"
        ) from None

    class Writer(GGUFWriter):
        """Takes fields as they stand in another file."""

        def _pack_val(self, val: Any, *arguments: Any, **options: Any) -> bytes:
            if isinstance(val, _Packed):
                return val
            packed: bytes = super()._pack_val(val, *arguments, **options)
            return packed

    writer = Writer(path, sizes.arch)
    writer.add_name(f"synthetic {name} on {vocab.name}, random weights")
    writer.add_context_length(8192)
    writer.add_embedding_length(sizes.width)
    writer.add_block_count(sizes.layers)
    writer.add_feed_forward_length(sizes.hidden)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_key_length(sizes.head)
    writer.add_value_length(sizes.head)
    writer.add_rope_dimension_count(sizes.head)
    writer.add_rope_freq_base(sizes.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab.n_tokens)
    for key, field in _fields(vocab.path):
        if key.startswith("tokenizer."):
            writer.add_key_value(key, field, GGUFValueType.UINT8)  # the field tells its own type
    tensors = list(sizes.tensors(vocab.n_tokens))
    for tensor, dims in tensors:
        raw = None if len(dims) == 1 else GGMLQuantizationType.Q8_0
        writer.add_tensor_info(tensor, dims, np.dtype(np.float32), _nbytes(dims), raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = np.random.default_rng(0)
    for _, dims in tensors:
        writer.write_tensor_data(_weights(dims, random))
    writer.close()


class _Packed(bytes):
    """A field's type and value as they stand in a GGUF file."""


# Bytes of GGUF's fixed-size types by number (ggml's docs/gguf.md); 8 is a string, 9 an array.
_FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def _fields(path: Path) -> Iterator[tuple[str, _Packed]]:
    """Yield the fields of a GGUF file, unread.

    A vocabulary has a field of a quarter of a million strings, over which the gguf package's
    reader, which makes an array of each, takes a minute.
    """
    data = path.read_bytes()
    count = struct.unpack_from("<Q", data, 16)[0]
    at = 24
    for _ in range(count):
        size = struct.unpack_from("<Q", data, at)[0]
        key = data[at + 8 : at + 8 + size].decode(errors="replace")
        at += 8 + size
        end = _end_of_value(data, at + 4, struct.unpack_from("<I", data, at)[0])
        yield key, _Packed(data[at:end])
        at = end


def _end_of_value(data: bytes, at: int, kind: int) -> int:
    unpack_u64 = struct.Struct("<Q").unpack_from
    if kind == _STRING:
        return at + 8 + int(unpack_u64(data, at)[0])
    if kind != _ARRAY:
        return at + _FIXED[kind]
    of = struct.unpack_from("<I", data, at)[0]
    n = int(unpack_u64(data, at + 4)[0])
    at += 12
    if of != _STRING:
        return at + n * _FIXED[of]
    for _ in range(n):
        at += 8 + unpack_u64(data, at)[0]
    return at


def _weights(dims: tuple[int, ...], random: np.random.Generator) -> npt.NDArray[Any]:
    if len(dims) == 1:
        return np.ones(dims, np.float32)
    n = int(np.prod(dims))
    # Uniform in ±127 has a deviation of 73; a row's sum then keeps the size of its input.
    blocks = np.empty(n // 32, _Q8_0)
    blocks["scale"] = 1 / (73 * np.sqrt(dims[-1]))
    blocks["weights"] = np.frombuffer(random.bytes(n), np.int8).reshape(-1, 32)
    return blocks.view(np.uint8)


def _nbytes(dims: tuple[int, ...]) -> int:
    n = int(np.prod(dims))
    return 4 * n if len(dims) == 1 else n // 32 * _Q8_0.itemsize
