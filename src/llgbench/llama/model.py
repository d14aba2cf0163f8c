"""Models for the decode loop: any GGUF, or a synthetic one of a named shape.

A synthetic model has a real vocabulary and random weights. How long a decode takes depends on the
shape and not on what the weights are, so it serves where no weights can be had; what it says is
noise. It is called synthetic wherever it appears.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np

from llgbench import files
from llgbench._native import ffi, lib
from llgbench.engines.handle import Handle
from llgbench.errors import InputError, ModelError, UnavailableError
from llgbench.llama.api import first_error, llama, quiet
from llgbench.llama.device import Device, device_facts, require_memory
from llgbench.llama.sampler import decoder
from llgbench.llama.vocab import Vocab

# ggml's GGML_MAX_N_THREADS; where more are asked for it aborts.
MAX_THREADS = 512


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
            require_memory(path.stat().st_size, str(path))
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
            require_memory(
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
