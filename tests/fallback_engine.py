"""The engine with the greedy lexeme fallback, for the tests of it: opened, asked and read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from llgbench._native import ffi

from llgbench import paths
from llgbench.engines import build as engine_build
from llgbench.engines import cargo
from llgbench.engines import engine as engines
from llgbench.engines.engine import Engine, Matcher, Tokenizer
from llgbench.fallback.states import THRESHOLD, set_threshold

LISTED = 'start: STEM SUFFIX\nSTEM: "list" | "listen"\nSUFFIX: "ed"\n'
N = 200  # more bytes than are read again: the fallback is kept in step
# For tests on generated grammars. A failing one is small as it is, and making it smaller takes many
# minutes.
GENERATED = settings(
    phases=[Phase.explicit, Phase.generate], deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
CHECKPOINT = f"start: HEAD TAIL\nHEAD: /a|ab{{{N}}}c/\nTAIL: /b{{{N}}}d/\n"
# Four terminals nested in each other's gap, and bytes enough for all to be kept in step.
NESTED = (
    f"start: P Q R TAIL\nP: /p|pqrz{{{N}}}1/\nQ: /q|qrz{{{N}}}2/\nR: /r|rz{{{N}}}3/\n"
    f"TAIL: /z{{{N}}}5/\n"
)


# Where engines are kept between runs, unlike all else that tests cache: building takes minutes.
CACHE = os.environ.get(paths.CACHE_VARIABLE)


# The library that tools/mutate.py has put a fault into.
MUTANT = os.environ.get("LLGBENCH_MUTANT")


def built(flavour: str) -> Engine:
    if MUTANT is not None and flavour == "fallback":
        return engines.load(Path(MUTANT))
    with pytest.MonkeyPatch.context() as patch:
        if CACHE is None:
            patch.delenv(paths.CACHE_VARIABLE, raising=False)
        else:
            patch.setenv(paths.CACHE_VARIABLE, CACHE)
        lack = cargo.missing()
        if lack is not None and engine_build.cached(flavour) is None:
            pytest.skip(lack)
        return engines.load(engine_build.build(flavour))


def call(engine: Engine, name: str, signature: str) -> Callable[..., int]:
    function: Callable[..., int] = ffi.cast(signature, engine.symbol(name))
    return function


def options(**more: object) -> str:
    return f"%llguidance {json.dumps({'greedy_lexeme_fallback': True, **more})}\n"


def matcher(tokenizer: Tokenizer, grammar: str, *, gap: int = THRESHOLD, **more: object) -> Matcher:
    """Make one with the option on that keeps in step what is more than ``gap`` bytes back."""
    made = tokenizer.matcher(options(**more) + grammar)
    set_threshold(made, gap)
    return made


def reads(m: Matcher, text: str | bytes) -> int:
    """Consume bytes for as long as that works; return how many."""
    data = text.encode() if isinstance(text, str) else text
    for number, byte in enumerate(data):
        mask = m.allowed()
        valid = m.validate([byte]) == 1
        assert mask is None or valid == (byte in mask)
        if not valid or not m.consume(byte):
            return number
    return len(data)


def accepts(tokenizer: Tokenizer, grammar: str, text: str | bytes, **more: bool) -> bool:
    with matcher(tokenizer, grammar, **more) as m:
        return reads(m, text) == len(text) and m.is_accepting()


def allowed(m: Matcher) -> list[int]:
    found = m.allowed()
    assert found is not None, m.error()
    return [int(token) for token in found]


def next_bytes(m: Matcher) -> bytes:
    return bytes(token for token in allowed(m) if token < 256)


def captures(m: Matcher) -> list[tuple[str, bytes]]:
    engine, pointer = m.tokenizer.engine, ffi.cast("void *", m.pointer)
    count = call(engine, "llgx_matcher_num_captures", "size_t(*)(void *)")(pointer)
    get = call(
        engine,
        "llgx_matcher_capture",
        "int32_t(*)(void *, size_t, char **, size_t *, char **, size_t *)",
    )
    found = []
    for index in range(count):
        name, data = ffi.new("char **"), ffi.new("char **")
        name_len, data_len = ffi.new("size_t *"), ffi.new("size_t *")
        assert get(pointer, index, name, name_len, data, data_len) == 0
        key = bytes(ffi.buffer(name[0], name_len[0])).decode()
        found.append((key, bytes(ffi.buffer(data[0], data_len[0]))))
    return found
