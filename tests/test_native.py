from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import Lab
from hypothesis import given
from hypothesis import strategies as st
from llgbench._native import ffi, lib

from llgbench.engines.engine import Engine
from llgbench.inputs.variant import get
from llgbench.llama import bridge
from llgbench.llama.vocab import Vocab
from llgbench.measure import replay

GUARD = 0xDEADBEEF


def tokenize(context: object, data: bytes, room: int) -> tuple[int, list[int]]:
    """Call the native tokenize_fn with room for so many tokens; the room after it stays as is."""
    out = ffi.new("uint32_t[]", [GUARD] * (room + 4))
    n = lib.lb_tokenize(context, ffi.from_buffer("uint8_t[]", data), len(data), out, room)
    tokens = [int(t) for t in out]
    assert tokens[room:] == [GUARD] * 4, "written beyond the room"
    return int(n), tokens[:room]


def test_the_clock_goes_forward() -> None:
    times = [lib.lb_now_ns() for _ in range(100)]
    assert times == sorted(times)
    assert times[0] > 0


def test_ticks_and_nanoseconds_keep_their_ratio() -> None:
    first, second = lib.lb_ns_per_tick(), lib.lb_ns_per_tick()
    assert 0.01 < first <= 10
    assert first == pytest.approx(second, rel=1e-3)
    if not lib.lb_clock_is_tsc:
        assert first == 1.0


def test_everything_works_by_the_kernels_clock(wheel: Engine) -> None:
    """As where the processor's counter does not tick evenly; what is recorded says so."""
    code = (
        "from llgbench import paths; from llgbench.engines import registry; "
        "from llgbench.engines import engine; "
        "from llgbench.measure import provenance, replay; import numpy as np; "
        "tokenizer = engine.byte_tokenizer(registry.get('wheel')); "
        "matcher = tokenizer.matcher('start: /a+/'); "
        "done = replay.replay(matcher, np.full(50, 97)); "
        "assert done.inside_ns > 0 and len(done.op_ns) == 50 and done.op_ns.min() > 0; "
        "print(provenance.collect(paths.root())['clock'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "LLGBENCH_CLOCK": "monotonic"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "clock_monotonic"


def test_a_step_has_the_layout_numpy_reads() -> None:
    for name in ("op_ns", "consume_ns", "mask_hash", "allowed", "flags"):
        assert replay.STEP.fields is not None
        assert ffi.offsetof("lb_step", name) == replay.STEP.fields[name][1]
    assert ffi.sizeof("lb_step") == replay.STEP.itemsize


def test_an_empty_step_is_cheap() -> None:
    step = replay.empty_step()
    assert 0 <= step.read_ns < 2000
    assert 0 < step.wall_ns < 2000


def test_an_optional_export(wheel: Engine) -> None:
    assert wheel.symbol("llg_get_version") is not None
    assert wheel.symbol("llg_no_such_function") is None


@pytest.mark.parametrize("source", ["detokenize", "token_to_piece"])
def test_a_token_table_is_what_llama_cpp_says(lab: Lab, source: str) -> None:
    """Each token again, through llama-cpp-python's own binding."""
    from llama_cpp import llama_cpp as c

    vocab = lab.vocab("llama-spm")
    table = vocab.table("detokenize" if source == "detokenize" else "token_to_piece")
    handle = c.llama_model_get_vocab(vocab.pointer)
    room = 1024
    buffer = ctypes.create_string_buffer(room)

    def ask(token: int, special: bool) -> bytes:
        if source == "detokenize":
            tokens = (c.llama_token * 1)(token)
            n = c.llama_detokenize(handle, tokens, 1, buffer, room, False, special)
        else:
            n = c.llama_token_to_piece(handle, token, buffer, room, 0, special)
        assert n >= 0
        return bytes(buffer.raw[:n])

    for token, found in enumerate(table.tokens):
        plain = ask(token, False)
        special = b"" if plain else ask(token, True)
        assert found == (b"\xff" + special if special else plain)
        assert table.marked[token] == bool(special)


def test_a_token_table_is_whole(every_vocab: Vocab) -> None:
    for source in ("detokenize", "token_to_piece"):
        table = every_vocab.table("detokenize" if source == "detokenize" else "token_to_piece")
        assert len(table.lens) == len(table.marked) == every_vocab.n_tokens
        assert int(table.lens.sum(dtype=np.int64)) == len(table.data)
        assert b"".join(table.tokens) == table.data.tobytes()
        marked = np.flatnonzero(table.marked)
        assert all(table.tokens[t].startswith(b"\xff") for t in marked)
        assert table.build_ns > 0


@pytest.mark.parametrize("variant", ["baseline", "sentinel"])
@given(text=st.text(min_size=1, max_size=40), room=st.integers(0, 60))
def test_tokenize_says_how_much_room_it_needs(lab: Lab, variant: str, text: str, room: int) -> None:
    context = bridge.context(lab.vocab("llama-spm"), get(variant))
    data = text.encode()
    needed, whole = tokenize(context, data, len(data) + 8)
    n, tokens = tokenize(context, data, room)
    assert n == needed
    if n <= room:
        assert tokens[:n] == whole[:n]


@given(text=st.text(max_size=60))
def test_the_sentinel_gives_the_bytes_back(lab: Lab, text: str) -> None:
    vocab = lab.vocab("llama-spm")
    context = bridge.context(vocab, get("sentinel"))
    data = text.encode()
    # A special token spelled out in the text is a token, not these bytes (parse_special).
    n, tokens = tokenize(context, data, len(data) + 8)
    spelled = vocab.spell(np.array(tokens[:n], np.uint32))
    if not any(vocab.table("token_to_piece").marked[t] for t in tokens[:n]):
        assert spelled == data


@given(data=st.binary(max_size=40))
def test_the_sentinel_takes_any_bytes(lab: Lab, data: bytes) -> None:
    context = bridge.context(lab.vocab("llama-spm"), get("sentinel"))
    n, _ = tokenize(context, data, len(data) + 8)
    assert n <= len(data) + 8


def test_baseline_prepends_a_space_and_the_sentinel_does_not(lab: Lab) -> None:
    vocab = lab.vocab("llama-spm")
    for variant, wanted in (("baseline", b" The"), ("sentinel", b"The")):
        n, tokens = tokenize(bridge.context(vocab, get(variant)), b"The", 8)
        assert vocab.spell(np.array(tokens[:n], np.uint32)) == wanted
