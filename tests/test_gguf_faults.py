"""What llama.cpp does not survive, named by what is wrong in the file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import gguf
import made_gguf
import opened_apart as opened_apart_module
import pytest
from conftest import FUZZ
from made_gguf import BYTES

from llgbench.inputs import catalogue, gguf_faults


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
        ("rwkv", [b"", b"o", b"on", rb"\x0a", rb"\n\n", rb"\\", rb"\\\x0a"], None),
        (
            "rwkv",
            [b"o", rb"\x0a\t"],
            "tokens begin with byte 0x0a, and it is not a token by itself",
        ),
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


# ---- whatever is in the file, a result or one line ----

# The share of files that may end by the limit on CPU time: 4 of 2,000 do, in llama.cpp's RWKV
# tokenizer, and 14 examinations, in the gguf package.
LATE = 0.01

# The number of a file that does.
NEVER_ENDS = 341

APART = [sys.executable, str(Path(__file__).with_name("opened_apart.py"))]


def opened_apart(paths: list[Path]) -> list[list[dict[str, object]]]:
    """Return what opening each file says and how it ends, and the same of examining it."""
    done = subprocess.run(
        APART, input="".join(f"{path}\n" for path in paths), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[list[dict[str, object]]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(paths)
    return found


def test_each_kind_of_vocabulary_is_opened(tmp_path: Path) -> None:
    """What the mutations begin with is read to the end."""
    paths = [tmp_path / f"{model}.gguf" for model in made_gguf.MODELS]
    for path in paths:
        path.write_bytes(made_gguf.vocabulary(path.stem).written())
    for path, (opened, examined) in zip(paths, opened_apart(paths), strict=True):
        assert "result" in opened, (path.stem, opened)
        assert examined["result"] == "", path.stem


@pytest.mark.fuzz
@pytest.mark.usefixtures("_vocabs_here")
def test_no_mutated_header_ends_in_anything_but_a_result_or_one_line(tmp_path: Path) -> None:
    """LLGBENCH_FUZZ=2000 tries as many; a number names its file, so that it can be made again."""
    whole = catalogue.vocab_path("llama-spm").read_bytes()
    paths = [tmp_path / f"{number}.gguf" for number in range(FUZZ)]
    for number, path in enumerate(paths):
        real = number % 20 == 0
        path.write_bytes(
            made_gguf.damaged_head(whole, number) if real else made_gguf.mutation(number)
        )
    read_far, died, late, unread = 0, 0, 0, 0
    for path, (opened, examined) in zip(paths, opened_apart(paths), strict=True):
        what = (path.name, opened, examined)
        lines = [opened.get("result"), opened.get("refused")]
        assert "raised" not in opened, what
        if opened["status"] != 0:  # llama.cpp asserts; the line is what the examination finds, or
            died += 1  # llama.cpp's last words; what never ends has none
            lines = [examined.get("result"), "" if opened["late"] else opened["words"]]
        late += bool(opened["late"])
        # The examination's own end by its limit is no answer; any other end is a defect.
        unread += bool(examined["late"])
        assert examined["status"] == 0 or examined["late"], what
        [line, *_] = [str(line) for line in lines if line] or [""]
        assert line, what
        assert "\n" not in line, what
        assert "Traceback" not in line, what
        read_far += "result" in opened or opened["status"] != 0
    print(
        f"{FUZZ} files: {read_far} read far, {died} ended llama.cpp, {late} of them by the limit "
        f"on CPU time; {unread} examinations ended by it"
    )
    # Mutations that are all refused at the head, or that kill nothing, would show nothing.
    assert read_far > FUZZ / 5
    assert died > 0
    # And a limit that ends every tenth file would hide what they do.
    assert late <= max(1, FUZZ * LATE)
    assert unread <= max(1, FUZZ * LATE)


def test_a_tokenizer_that_never_ends_is_named(tmp_path: Path) -> None:
    """RWKV's looks again from the beginning where a token's first byte is not a token."""
    path = tmp_path / "rwkv.gguf"
    path.write_bytes(made_gguf.mutation(NEVER_ENDS))
    ((opened, examined),) = opened_apart([path])
    # It takes memory as it goes: which limit is met first is the machine's affair.
    assert opened["late"] or "std::bad_alloc" in str(opened["words"])
    assert "result" not in opened
    assert examined["result"] == "tokens begin with byte 0x3c, and it is not a token by itself"


def test_only_the_limit_on_cpu_time_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened_apart_module, "SECONDS", 1)

    def spin(_path: str) -> str:
        while True:
            pass

    def killed(_path: str) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    assert opened_apart_module.apart(spin, "")["late"] is True
    ended = opened_apart_module.apart(killed, "")
    assert (ended["late"], ended["status"]) == (False, -signal.SIGKILL)
