"""What llama.cpp does not survive, named by what is wrong in the file."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from llgbench.inputs import catalogue, gguf_faults

BYTES = [b"<0x%02X>" % byte for byte in range(256)]


@pytest.mark.parametrize(
    ("model", "tokens", "why"),
    [
        ("llama", [*BYTES, b"on", b"off"], None),
        ("llama", [*BYTES, b"on", b"off", b"on"], "token 'on' is listed twice (256 and 258)"),
        ("gpt2", [b"a", b"a"], "token 'a' is listed twice (0 and 1)"),
        ("gpt2", [b"", b""], None),  # llama.cpp gives these names of their own
        ("llama", [*BYTES[:-1], b"on"], "the vocabulary has no token for byte 0xff"),
        ("llama", [*BYTES[:10], b"\n", *BYTES[11:]], None),
        ("llama", [], "the vocabulary has no token for byte 0x00"),
        ("gpt2", [b"\xff", b"\xff"], "token '\ufffd' is listed twice (0 and 1)"),
    ],
)
def test_the_fault_is_named(model: str, tokens: list[bytes], why: str | None) -> None:
    assert gguf_faults.fault(model, tokens) == why


def test_a_file_is_read_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path / "twice.gguf", [*BYTES, b"on", b"on"])
    assert gguf_faults.diagnose(path) == "token 'on' is listed twice (256 and 257)"


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF" + b"\xff" * 60, b"nothing"])
def test_a_file_that_cannot_be_read_gives_no_answer(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    assert gguf_faults.diagnose(path) is None


@pytest.mark.usefixtures("_vocabs_here")
def test_the_catalogue_has_none_of_these_faults() -> None:
    for name in ("llama-spm", "bert-bge", "qwen2"):
        assert gguf_faults.diagnose(catalogue.vocab_path(name)) is None


def write(path: Path, tokens: list[bytes]) -> Path:
    """Write a SentencePiece vocabulary."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
