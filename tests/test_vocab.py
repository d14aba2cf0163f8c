from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import CATALOGUE, ROOT, Lab
from hypothesis import given
from hypothesis import strategies as st

from llgbench import vocab
from llgbench.engine import INVALID_TOKEN
from llgbench.errors import UnavailableError, UnknownNameError, VocabError
from llgbench.vocab import Vocab

NAMES = (
    "aquila", "baichuan", "bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon",
    "gemma-4", "gpt-2", "gpt-neox", "llama-bpe", "llama-spm", "mpt", "nomic-bert-moe", "phi-3",
    "qwen2", "qwen35", "refact", "starcoder",
)  # fmt: skip

# bert-bge knows lower case alone; nomic-bert-moe has no line break.
ASCII = b'{"Name": "a\\tb",\n  "n": [1, 2.5e-3, null]}\n\n  // 00 <<>> \t~'
UNICODE = "naïve Größe 日本語 🙂 \u00a0 e\u0301".encode()


@pytest.fixture
def small(lab: Lab, tmp_path: Path) -> Path:
    """A checkout whose catalogue is that of this one, with a copy of llama-spm's file."""
    (tmp_path / "grammars").mkdir()
    (tmp_path / "vocabs").mkdir()
    shutil.copy(ROOT / "vocabs" / "vocabs.toml", tmp_path / "vocabs")
    shutil.copy(CATALOGUE["llama-spm"].path, tmp_path / "vocabs")
    return tmp_path


def gguf(root: Path) -> Path:
    return root / "vocabs" / "ggml-vocab-llama-spm.gguf"


def test_the_catalogue_has_the_nineteen() -> None:
    assert tuple(sorted(CATALOGUE)) == NAMES
    assert vocab.source_distribution(ROOT) == "llama-cpp-python==0.3.36"


def test_each_opens_as_recorded(every_vocab: Vocab) -> None:
    entry = CATALOGUE[every_vocab.name]
    assert every_vocab.n_tokens == entry.tokens
    assert every_vocab.kind == entry.kind
    assert every_vocab.sha256 == entry.sha256 == vocab.file_sha256(entry.path)
    assert every_vocab.eos < every_vocab.n_tokens or every_vocab.eos == INVALID_TOKEN


def test_the_end_token(lab: Lab) -> None:
    """Eot where there is one, else eos; bert-bge has neither."""
    assert lab.vocab("llama-bpe").eos == 128009  # <|eot_id|>, while eos is 128001
    assert lab.vocab("llama-spm").eos == 2
    assert lab.vocab("bert-bge").eos == INVALID_TOKEN


def test_any_gguf_opens_by_path(small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with vocab.open_vocab(str(gguf(small)), small) as opened:
        assert opened.name == "ggml-vocab-llama-spm"
        assert opened.n_tokens == 32000
    assert capfd.readouterr() == ("", "")


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean llama-spm"):
        vocab.open_vocab("llama-smp", ROOT)


def test_a_path_to_nothing(tmp_path: Path) -> None:
    for name in (
        str(tmp_path / "x.gguf"),
        "no-such.gguf",
        str(tmp_path),
        "a\0b.gguf",
        "x" * 300 + ".gguf",
    ):
        with pytest.raises(VocabError, match="no such file"):
            vocab.open_vocab(name, ROOT)


def test_not_fetched(small: Path) -> None:
    with pytest.raises(UnavailableError, match="run: llgbench vocab fetch"):
        vocab.open_vocab("llama-bpe", small)


@pytest.mark.parametrize("at", [0, 4, 24, 100_000, -1])
def test_one_altered_byte_is_refused_by_name(
    small: Path, at: int, capfd: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(gguf(small).read_bytes())
    data[at] ^= 1
    gguf(small).write_bytes(data)
    with pytest.raises(VocabError, match=r"altered or truncated .*llgbench vocab fetch"):
        vocab.open_vocab("llama-spm", small)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("at", [0, 4, 8, 16, 24, 30, 100, 5000])
def test_an_altered_byte_in_the_structure_is_refused_by_path(
    small: Path, at: int, capfd: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(gguf(small).read_bytes())
    data[at] ^= 0xFF
    gguf(small).write_bytes(data)
    with pytest.raises(VocabError, match=r"llama\.cpp does not load it") as caught:
        vocab.open_vocab(str(gguf(small)), small)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("size", [0, 3, 4, 16, 100, 5000, 400_000, -1])
def test_a_truncated_file_is_refused(
    small: Path, size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    gguf(small).write_bytes(gguf(small).read_bytes()[:size])
    with pytest.raises(VocabError, match="altered or truncated"):
        vocab.open_vocab("llama-spm", small)
    with pytest.raises(VocabError, match=r"llama\.cpp does not load it: .*(read|exceeds)"):
        vocab.open_vocab(str(gguf(small)), small)
    assert capfd.readouterr() == ("", "")


def test_the_reason_is_that_of_this_file(small: Path) -> None:
    """Not the one llama.cpp gave for the file before."""
    whole = gguf(small).read_bytes()
    gguf(small).write_bytes(whole[:16])
    with pytest.raises(VocabError, match="failed to read"):
        vocab.open_vocab(str(gguf(small)), small)
    gguf(small).write_bytes(b"no GGUF at all, but long enough for a header\n")
    with pytest.raises(VocabError, match="invalid magic"):
        vocab.open_vocab(str(gguf(small)), small)


def test_a_gguf_without_a_vocabulary(tmp_path: Path, lab: Lab) -> None:
    path = tmp_path / "empty.gguf"
    # magic, version 3, no tensors, no metadata
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(16))
    with pytest.raises(VocabError):
        vocab.open_vocab(str(path), ROOT)


def test_a_recorded_count_that_is_wrong(small: Path) -> None:
    catalogue = small / "vocabs" / "vocabs.toml"
    catalogue.write_text(catalogue.read_text().replace("tokens = 32000", "tokens = 31999"))
    with pytest.raises(VocabError, match="32000 tokens, recorded are 31999"):
        vocab.open_vocab("llama-spm", small)


def test_fetch_leaves_alone_what_is_here(lab: Lab) -> None:
    lines: list[str] = []
    entries = vocab.fetch(lines.append, ROOT)
    assert [entry.name for entry in entries] == list(CATALOGUE)
    assert lines == ["19 of 19 vocabularies are here and verified"]


def test_extract_replaces_nothing_by_a_wrong_file(small: Path, tmp_path: Path) -> None:
    import tarfile

    before = gguf(small).read_bytes()
    entry = vocab.catalogue(small)["llama-spm"]
    wrong = tmp_path / "wrong" / gguf(small).name
    wrong.parent.mkdir()
    wrong.write_bytes(b"something else")
    archive = tmp_path / "sdist.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(wrong, arcname=f"sdist/models/{wrong.name}")
    with pytest.raises(VocabError, match="nothing was replaced"):
        vocab._extract(archive, [entry])
    assert gguf(small).read_bytes() == before
    assert not list(small.glob("vocabs/*.part"))
    with pytest.raises(VocabError, match="does not hold ggml-vocab-llama-bpe"):
        vocab._extract(archive, [vocab.catalogue(small)["llama-bpe"]])
    archive.write_bytes(archive.read_bytes()[:40])
    with pytest.raises(VocabError, match="cannot extract"):
        vocab._extract(archive, [entry])


def test_extract_brings_the_right_file(small: Path, tmp_path: Path) -> None:
    import tarfile

    archive = tmp_path / "sdist.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(gguf(small), arcname=f"sdist/models/{gguf(small).name}")
    gguf(small).unlink()
    vocab._extract(archive, [vocab.catalogue(small)["llama-spm"]])
    vocab.open_vocab("llama-spm", small).close()


def test_a_distribution_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(VocabError, match=r"pip cannot download \./no-such-package"):
        vocab._download("./no-such-package==1", tmp_path)


# ---- traces ----


def test_a_trace_is_byte_exact_on_every_vocab(every_vocab: Vocab) -> None:
    if every_vocab.name == "bert-bge":
        with pytest.raises(UnavailableError, match=r"no token for byte 2 of the text \(0x4e\)"):
            every_vocab.trace(ASCII)
        return
    if every_vocab.name == "nomic-bert-moe":
        with pytest.raises(UnavailableError, match=r"no token for byte 8|\(0x"):
            every_vocab.trace(ASCII)
        return
    for text in (ASCII, UNICODE, b" ", b"\n", b"a", ASCII * 20):
        tokens = every_vocab.trace(text)
        assert tokens.dtype == np.uint32
        assert every_vocab.spell(tokens) == text
        assert not every_vocab.table("token_to_piece").marked[tokens].any()


def test_a_trace_of_nothing(lab: Lab) -> None:
    tokens = lab.vocab("llama-spm").trace(b"")
    assert tokens.shape == (0,)
    assert tokens.dtype == np.uint32


@pytest.mark.parametrize("name", ["llama-spm", "llama-bpe", "qwen2"])
@given(text=st.text(max_size=80))
def test_any_text_is_spelled_by_its_trace(lab: Lab, name: str, text: str) -> None:
    opened = lab.vocab(name)
    data = text.encode()
    assert opened.spell(opened.trace(data)) == data


@pytest.mark.parametrize("name", ["llama-spm", "llama-bpe", "qwen2"])
@pytest.mark.parametrize("text", ["<s>", "</s> a", "<|eot_id|>", "<|im_end|> x", "\x01\x02", "\0"])
def test_special_tokens_in_a_text_are_spelled_out(lab: Lab, name: str, text: str) -> None:
    opened = lab.vocab(name)
    tokens = opened.trace(text.encode())
    assert opened.spell(tokens) == text.encode()
    assert not opened.table("token_to_piece").marked[tokens].any()


@pytest.mark.parametrize("name", ["llama-spm", "llama-bpe"])
@given(data=st.binary(max_size=40))
def test_bytes_that_are_no_utf8_are_spelled_too(lab: Lab, name: str, data: bytes) -> None:
    opened = lab.vocab(name)
    assert opened.spell(opened.trace(data)) == data


# ---- the handle ----


def test_use_after_close(lab: Lab) -> None:
    opened = vocab.open_vocab("llama-spm", ROOT)
    table = opened.table("detokenize")
    assert len(table.lens) == 32000
    opened.close()
    opened.close()
    for use in (
        lambda: opened.tokenize(b"x"),
        lambda: opened.table("detokenize"),
        lambda: opened.build_table("token_to_piece"),
        lambda: opened.trace(b"x"),
        lambda: opened.is_byte_exact,
        lambda: opened.vocab,
    ):
        with pytest.raises(ValueError, match="Vocab is closed"):
            use()
    for gone in (lambda: table.lens, lambda: table.data, lambda: table.marked):
        with pytest.raises(ValueError, match="TokenTable is closed"):
            gone()


def test_a_table_is_built_once_and_a_built_one_is_the_callers(lab: Lab) -> None:
    opened = lab.vocab("llama-spm")
    assert opened.table("detokenize") is opened.table("detokenize")
    with opened.build_table("detokenize") as mine:
        assert mine is not opened.table("detokenize")
        assert mine.tokens == opened.table("detokenize").tokens


def test_the_sentinel_stands_in_no_other_token(every_vocab: Vocab) -> None:
    sentinel = every_vocab.sentinel
    if sentinel is None:
        assert every_vocab.name in ("bert-bge", "nomic-bert-moe")
        return
    holding = [t for t in every_vocab.table("token_to_piece").tokens if sentinel in t]
    assert holding
    assert set(holding) == {sentinel}


def test_an_exit_without_close_says_nothing() -> None:
    program = (
        "import llgbench.vocab as v, llgbench.bridge as b, llgbench.registry as r\n"
        "from llgbench.variant import get\n"
        f"v.keep = v.open_vocab('llama-spm', __import__('pathlib').Path({str(ROOT)!r}))\n"
        "v.keep2 = b.build(r.get('wheel'), v.keep, get('baseline'))\n"
        "v.keep3 = v.keep2.matcher('start: \"hello\"')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
