"""Models for the decode loop: any GGUF, or a synthetic one of a named shape.

A synthetic model has a real vocabulary and random weights. How long a decode takes depends on the
shape and not on what the weights are, so it serves where no weights can be had; what it says is
noise. It is called synthetic wherever it appears.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from llgbench import files, paths
from llgbench._native import ffi, lib
from llgbench.engines.handle import Handle
from llgbench.errors import InputError, ModelError, UnavailableError, UnknownNameError
from llgbench.llama.api import first_error, llama, quiet
from llgbench.llama.sampler import decoder
from llgbench.llama.vocab import Vocab

Device = Literal["cpu", "cuda"]
DEVICES: tuple[Device, ...] = get_args(Device)

# Raise it when the same shape and vocab would give another file.
_GENERATOR = 1
# ggml's GGML_MAX_N_THREADS; where more are asked for it aborts.
MAX_THREADS = 512
# One block of ggml's Q8_0: 32 weights in 34 bytes.
_Q8_0 = np.dtype([("scale", "<f2"), ("weights", "i1", 32)])


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
    _require_memory(needed, f"shape {shape_name} on {vocab.name}")
    with files.folder(path.parent, error=UnavailableError):
        try:
            free = shutil.disk_usage(path.parent).free
            if needed > free:
                raise UnavailableError(
                    f"shape {shape_name} on {vocab.name} takes {_size(needed)} in {path.parent}, "
                    f"where {_size(free)} are free; choose a smaller --shape or set "
                    f"{paths.CACHE_VARIABLE}"
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
_STRING, _ARRAY = 8, 9


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


class Model(Handle):
    """A model that llama.cpp has loaded, weights and all.

    Attributes:
        path: the GGUF file.
        shape_name: of a synthetic model; None for a file the user named.
        device: where its layers are.
        device_facts: the device's name and driver, for records.
        vocab: ``llama_vocab *``, which lives as long as the model.
        n_tokens: of the vocabulary.
        description: llama.cpp's own words.
    """

    def __init__(self, path: Path, device: Device = "cpu", shape_name: str | None = None) -> None:
        """Load it; all layers go to the device.

        Raises:
            ModelError: it is missing or truncated, or llama.cpp does not know it.
            UnavailableError: no memory for it, or the device is not to be had.
        """
        self.path, self.shape_name, self.device = path, shape_name, device
        self.device_facts = device_facts(device)
        if not path.is_file():
            raise ModelError(f"{path}: no such model")
        if device == "cpu":
            _require_memory(path.stat().st_size, str(path))
        decoder()
        from llama_cpp import llama_cpp as c

        params = c.llama_model_default_params()
        params.n_gpu_layers = 0x7FFFFFFF if device == "cuda" else 0
        lib.lb_llama_forget_errors()
        with quiet():
            pointer = c.llama_model_load_from_file(os.fsencode(path), params)
        if not pointer:
            raise ModelError(f"{path}: llama.cpp does not load it: {first_error()}")
        self._pointer = pointer
        address = ctypes.cast(c.llama_model_get_vocab(pointer), ctypes.c_void_p).value
        self.vocab = ffi.cast("llama_vocab *", address)
        self.n_tokens = int(llama().n_tokens(self.vocab))
        text = ctypes.create_string_buffer(256)
        c.llama_model_desc(pointer, text, len(text))
        self.description = text.value.decode(errors="replace")

    def _free(self, pointer: Any) -> None:
        from llama_cpp import llama_cpp as c

        c.llama_model_free(pointer)

    @property
    def label(self) -> str:
        """What tables call it; a synthetic model is never called anything else."""
        return f"synthetic {self.shape_name}" if self.shape_name else self.path.name

    def facts(self) -> dict[str, Any]:
        """Return what a record says of the model."""
        from llama_cpp import llama_cpp as c

        return {
            "label": self.label,
            "synthetic": self.shape_name is not None,
            "shape": self.shape_name,
            "description": self.description,
            "parameters": int(c.llama_model_n_params(self.pointer)),
            "bytes": int(c.llama_model_size(self.pointer)),
            # A synthetic model's name holds a hash of all it is made of.
            "file": (
                self.path.name if self.shape_name else files.sha256(self.path, error=ModelError)
            ),
            "device": dict(self.device_facts),
        }

    def require_vocab(self, vocab: Vocab) -> None:
        """Refuse a model whose vocabulary is not the trace's.

        Raises:
            ModelError: the tokens or their bytes differ.
        """
        if self.n_tokens != vocab.n_tokens:
            raise ModelError(
                f"{self.path.name} has {self.n_tokens} tokens and vocab {vocab.name} "
                f"{vocab.n_tokens}: the trace's ids mean something else to this model"
            )
        table = ffi.new("lb_token_table *")
        if lib.lb_token_table_build(llama(), self.vocab, lib.LB_TOKEN_TO_PIECE, table) != 0:
            raise ModelError(f"{self.path}: llama.cpp does not give the bytes of every token")
        try:
            own = vocab.table("token_to_piece")
            lens = np.frombuffer(ffi.buffer(table.lens, table.n_tokens * 4), np.uint32)
            data = np.frombuffer(ffi.buffer(table.bytes, table.size), np.uint8)
            different = np.flatnonzero(lens != own.lens)
            if len(different) or not np.array_equal(data, own.data):
                which = f", first at token {different[0]}" if len(different) else ""
                raise ModelError(
                    f"the vocabulary of {self.path.name} is not {vocab.name}: its tokens have "
                    f"other bytes{which}"
                )
        finally:
            lib.lb_token_table_free(table)

    def first_token(self) -> int:
        """Return the token a text begins behind: begin-of-text, else the end, else 0."""
        from llama_cpp import llama_cpp as c

        vocab = c.llama_model_get_vocab(self.pointer)
        return next(
            (int(t) for t in (c.llama_vocab_bos(vocab), c.llama_vocab_eos(vocab)) if t >= 0), 0
        )


class Context(Handle):
    """A context of a model: the memory of what was decoded.

    Attributes:
        model: kept alive.
        length: tokens a sequence.
        sequences: how many at once.
        threads: that decode.
        batch_room: tokens of one decode.
    """

    def __init__(self, model: Model, length: int, sequences: int = 1, threads: int = 0) -> None:
        """Make it; 0 threads means all cores this process may use.

        Raises:
            UnavailableError: llama.cpp cannot make it, for want of memory as a rule.
            InputError: llama.cpp cannot count so many tokens, or has not so many threads.
        """
        from llama_cpp import llama_cpp as c

        self.model, self.length, self.sequences = model, length, sequences
        self.threads = threads or min(len(os.sched_getaffinity(0)), MAX_THREADS)
        if not 0 < self.threads <= MAX_THREADS:
            raise InputError(f"llama.cpp runs 1 to {MAX_THREADS} threads, not {threads}")
        self.batch_room = max(512, sequences)
        if length * sequences >= 2**31:
            raise InputError(f"a context of {length} tokens for {sequences} sequences is too long")
        params = c.llama_context_default_params()
        params.n_ctx = length * sequences
        params.n_seq_max = sequences
        params.n_batch = params.n_ubatch = self.batch_room
        # The loop asks for one row of logits a sequence; room for a whole batch of them would take
        # half a gigabyte on a large vocabulary.
        params.n_outputs_max = sequences
        params.n_threads = params.n_threads_batch = self.threads
        params.no_perf = True
        params.offload_kqv = model.device == "cuda"
        layers = int(c.llama_model_n_layer(model.pointer))
        width = int(c.llama_model_n_embd(model.pointer))
        shared = int(c.llama_model_n_head_kv(model.pointer)) / max(
            1, int(c.llama_model_n_head(model.pointer))
        )
        # Keys and values in half precision; a head may be wider than width / heads, hence about.
        if model.device == "cpu":
            _require_memory(
                int(4 * layers * width * shared * length * sequences),
                f"a context of {length} tokens for {sequences} sequences",
            )
        lib.lb_llama_forget_errors()
        with quiet():
            pointer = c.llama_init_from_model(model.pointer, params)
        if not pointer:
            raise UnavailableError(
                f"llama.cpp makes no context of {length} tokens for {sequences} sequences: "
                f"{first_error()}"
            )
        self._pointer = pointer
        self.handle = ffi.cast(
            "llama_context *", ctypes.cast(pointer, ctypes.c_void_p).value
        )  # for the native loop

    def _free(self, pointer: Any) -> None:
        from llama_cpp import llama_cpp as c

        c.llama_free(pointer)

    def require(self, tokens: int, what: str) -> None:
        """Refuse a text the context is too short for; one token stands before it.

        Raises:
            InputError: it is.
        """
        if tokens + 1 > self.length:
            raise InputError(
                f"the context of {self.length} tokens is too short for {what} "
                f"({tokens} tokens and one before them); give --context {tokens + 1} or more"
            )


def device_facts(device: Device) -> dict[str, str]:
    """Return the device's kind, name and driver.

    Raises:
        UnavailableError: llama.cpp was built without it, or sees none.
    """
    if device == "cpu":
        return {"kind": "cpu"}
    from llama_cpp import llama_cpp as c

    remedy = "docs/cuda.md has the command that installs the CUDA build"
    llama()
    if not c.llama_supports_gpu_offload():
        raise UnavailableError(
            f"--device cuda: this llama.cpp was built without GPU offload; {remedy}"
        )
    for name, description in _ggml_devices():
        if name.startswith("CUDA"):
            return {"kind": "cuda", "name": f"{name}: {description}", "driver": _cuda_driver()}
    raise UnavailableError(f"--device cuda: llama.cpp sees no CUDA device here; {remedy}")


def _ggml_devices() -> list[tuple[str, str]]:
    """Return name and description of every device ggml knows (ggml-backend.h)."""
    from llama_cpp import llama_cpp as c

    # llama.cpp links the library with the registry, so its symbols are found through it.
    library = ctypes.CDLL(c._lib._name)
    library.ggml_backend_dev_count.restype = ctypes.c_size_t
    library.ggml_backend_dev_get.restype = ctypes.c_void_p
    library.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    for function in (library.ggml_backend_dev_name, library.ggml_backend_dev_description):
        function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    found = []
    for i in range(library.ggml_backend_dev_count()):
        device = library.ggml_backend_dev_get(i)
        name = library.ggml_backend_dev_name(device).decode(errors="replace")
        text = library.ggml_backend_dev_description(device).decode(errors="replace")
        found.append((name, text))
    return found


def _cuda_driver() -> str:
    try:
        return Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        pass
    try:
        version = ctypes.c_int(0)
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
        return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    except (OSError, AttributeError):
        return "unknown"


def available_memory() -> int:
    """Return the bytes this process may still take, by the kernel's word and its cgroup's."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")]
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found = [int(line.split()[1]) * 1024]
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if limit.isdecimal():
            used = int(Path("/sys/fs/cgroup/memory.current").read_text())
            found.append(max(0, int(limit) - used))
    except (OSError, ValueError):
        pass
    return min(found)


def _require_memory(needed: int, what: str) -> None:
    there = available_memory()
    if needed > there:
        raise UnavailableError(
            f"no memory for {what}: it takes {_size(needed)}, {_size(there)} are available"
        )


def _size(n: int) -> str:
    return f"{n / 2**30:.1f} GiB" if n >= 2**30 else f"{n / 2**20:.0f} MiB"
