"""Small GGUF files of every kind of vocabulary, and what a mutation makes of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

# Types of values (ggml/include/gguf.h) and how the plain ones are packed.
STRING, ARRAY = 8, 9
PLAIN = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
U32, I32, F32, BOOL, U8 = 4, 5, 6, 7, 0

BYTES = [b"<0x%02X>" % byte for byte in range(256)]
Value = int | float | bytes | list[int] | list[float] | list[bytes]


@dataclass
class Entry:
    """One key with its value; ``length`` and ``of`` are an array's as written, true or not."""

    key: bytes
    kind: int
    value: Value
    of: int = 0
    length: int | None = None

    def written(self) -> bytes:
        head = _string(self.key) + struct.pack("<I", self.kind)
        if not isinstance(self.value, list):
            return head + _one(self.kind, self.value)
        items = b"".join(_one(self.of, item) for item in self.value)
        length = len(self.value) if self.length is None else self.length
        return head + struct.pack("<IQ", self.of, length % 2**64) + items


@dataclass
class Gguf:
    """A file without tensors; ``n_tensors`` and ``n_entries`` are as written, true or not."""

    entries: list[Entry]
    magic: bytes = b"GGUF"
    version: int = 3
    n_tensors: int = 0
    n_entries: int | None = None
    tail: bytes = field(default=b"")

    def written(self) -> bytes:
        count = len(self.entries) if self.n_entries is None else self.n_entries
        head = struct.pack("<IQQ", self.version, self.n_tensors % 2**64, count % 2**64)
        body = b"".join(entry.written() for entry in self.entries)
        return self.magic + head + body + self.tail


def _string(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _one(kind: int, value: float | bytes) -> bytes:
    """Write a value as the type asks, its lowest bytes where there is no room for it."""
    if isinstance(value, bytes):
        return _string(value)
    code = PLAIN.get(kind, "q")
    if code in "fd" or isinstance(value, float):
        return struct.pack("<f" if code == "f" else "<d", value)
    return (int(value) % 2**64).to_bytes(8, "little")[: struct.calcsize(code)]


def vocabulary(model: str) -> Gguf:
    """Return a vocabulary that llama.cpp opens, of one of :data:`MODELS`."""
    tokens = {
        "llama": [b"<unk>", b"<s>", b"</s>", *BYTES, "▁a".encode(), b"on", "▁on".encode()],
        "gpt2": [b"a", b"b", b"n", b"o", b"on", "Ġ".encode(), "Ċ".encode(), b"<|end|>", b"{", b"}"],
        "bert": [b"[PAD]", b"[UNK]", b"[CLS]", b"[SEP]", "▁a".encode(), "▁on".encode(), b"b"],
        "t5": [b"<pad>", b"</s>", b"<unk>", "▁".encode(), "▁a".encode(), b"on", b"{"],
        "rwkv": [b"<s>", *(b"\\x%02x" % byte for byte in range(1, 256)), b"on"],
        "plamo2": [b"<unk>", b"<s>", b"</s>", *BYTES, b"on", b"a"],
    }[model]
    kinds = [6 if token in BYTES else 3 if token[:1] in b"<[" else 1 for token in tokens]
    entries = [
        Entry(b"general.architecture", STRING, b"llama"),
        Entry(b"tokenizer.ggml.model", STRING, model.encode()),
        Entry(b"tokenizer.ggml.pre", STRING, b"default"),
        Entry(b"tokenizer.ggml.tokens", ARRAY, tokens, STRING),
        Entry(b"tokenizer.ggml.scores", ARRAY, [-float(i) for i in range(len(tokens))], F32),
        Entry(b"tokenizer.ggml.token_type", ARRAY, kinds, I32),
        Entry(b"tokenizer.ggml.bos_token_id", U32, 1),
        Entry(b"tokenizer.ggml.eos_token_id", U32, 2),
        Entry(b"tokenizer.ggml.unknown_token_id", U32, 0),
        Entry(b"tokenizer.ggml.add_bos_token", BOOL, 1),
        Entry(b"tokenizer.ggml.add_space_prefix", BOOL, 1),
    ]
    if model == "gpt2":
        entries.append(Entry(b"tokenizer.ggml.merges", ARRAY, [b"o n"], STRING))
    if model == "t5":
        entries.append(Entry(b"tokenizer.ggml.precompiled_charsmap", ARRAY, [0] * 8, U8))
    return Gguf(entries)


MODELS = ("llama", "gpt2", "bert", "t5", "rwkv", "plamo2")

NUMBERS = (0, 1, -1, 2, 255, 256, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
WORDS = (
    b"", b"\0", b"\xff", b"a", b"\xf0\x9f", b"x" * 5000, b"<0x41>", b"<0xZZ>", b"<|im_end|>",
    b"<s>", "▁".encode(), b"llama", b"gpt2", b"bert", b"t5", b"rwkv", b"plamo2", b"none", b"gemma4",
    b"llama-bpe", b"qwen2", b"o n x", b" ", b"\\x", b"'\\u0000'", b"b''", b"general.architecture",
    b"tokenizer.ggml.tokens", b"tokenizer.ggml.eot_token_id", b"tokenizer.chat_template",
    b"llama.vocab_size", b"split.count", b"general.alignment",
)  # fmt: skip


def mutation(number: int) -> bytes:
    """Return the bytes of the file of this number; most keep what makes a file be read far in."""
    rng = Random(number)
    made = vocabulary(rng.choice(MODELS))
    for _ in range(rng.randint(1, 2)):
        rng.choice((_head, *[_entry] * 3, *[_item] * 6))(made, rng)
    data = bytearray(made.written())
    if rng.random() < 0.1:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.05:
        del data[rng.randrange(len(data)) :]
    return bytes(data)


def damaged_head(data: bytes, number: int) -> bytes:
    """Return a real file with bytes of its first entries altered, and perhaps cut short."""
    rng = Random(number)
    altered = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        altered[rng.choice((rng.randrange(24), rng.randrange(600)))] = rng.randrange(256)
    return bytes(altered[: rng.choice((len(data), len(data), rng.randrange(700)))])


def _head(made: Gguf, rng: Random) -> None:
    match rng.randrange(5):
        case 0:
            made.version = rng.choice((0, 1, 2, 4, 1 << 24))
        case 1:
            made.n_tensors = rng.choice(NUMBERS)
        case 2:
            made.n_entries = rng.choice((*NUMBERS, len(made.entries) - 1, len(made.entries) + 1))
        case 3:
            made.tail = rng.randbytes(rng.randrange(200))
        case 4:
            made.magic = rng.choice((b"GGUF", b"FUGG", b"GGML"))


def _entry(made: Gguf, rng: Random) -> None:
    at = rng.randrange(len(made.entries))
    entry = made.entries[at]
    match rng.randrange(9):
        case 0:
            del made.entries[at]
            made.entries = made.entries or [entry]
        case 1:
            made.entries.append(entry)  # listed twice
        case 2:
            entry.key = rng.choice(WORDS)
        case 3:
            entry.kind = rng.choice((*PLAIN, STRING, ARRAY, 13, 2**31))
        case 4:
            entry.of = rng.choice((*PLAIN, STRING, ARRAY, 13, 2**31))
        case 5:
            entry.length = rng.choice(NUMBERS)
        case 6:
            entry.value = rng.choice((*NUMBERS, *WORDS))
        case 7:
            entry.kind, entry.of, entry.value = ARRAY, STRING, list(rng.choices(WORDS, k=3))
        case 8:
            key = b"tokenizer.ggml." + rng.choice(IDS)
            made.entries.append(Entry(key, U32, rng.choice(NUMBERS) % 2**32))


# Keys that name a token by its number.
IDS = (
    b"eot_token_id", b"eom_token_id", b"mask_token_id", b"seperator_token_id", b"padding_token_id",
    b"fim_pre_token_id", b"cls_token_id", b"token_type_count", b"remove_extra_whitespaces",
)  # fmt: skip


def _item(made: Gguf, rng: Random) -> None:
    """Alter, drop, double or swap items of an array."""
    values: list[list[object]] = [
        entry.value  # type: ignore[misc]
        for entry in made.entries
        if isinstance(entry.value, list)
    ]
    if not values:
        return
    items = rng.choice(values)
    if not items:
        return
    at, other = rng.randrange(len(items)), rng.randrange(len(items))
    wrong: Sequence[object] = WORDS if isinstance(items[at], bytes) else (*NUMBERS, float("nan"))
    match rng.randrange(5):
        case 0:
            items[at] = rng.choice(wrong)
        case 1:
            del items[at]
        case 2:
            items.append(items[at])
        case 3:
            items[at], items[other] = items[other], items[at]
        case 4:
            del items[at:]
