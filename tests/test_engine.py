from __future__ import annotations

import gc
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llgbench.engines import elf, engine, wheels
from llgbench.engines.engine import INVALID_TOKEN, Engine, Matcher, Tokenizer, byte_tokenizer
from llgbench.errors import EngineError, GrammarError, PackageIndexError
from llgbench.inputs.variant import FALLBACK_OPTIONS

GRAMMARS = [
    'start: "ab" | "ac" | "b"',
    "start: /[0-9]{1,3}/ /[a-z]+/?",
    'start: NAME "=" VALUE\nNAME: /[a-z]+/\nVALUE: /[0-9]+/ | "none"\n%ignore " "',
    'start: %json {"type": "object", "properties": {"a": {"type": "integer"}}}',
]


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS in /proc/self/status")


# ---- loading ----


def test_the_wheel(wheel: Engine) -> None:
    assert wheel.version.startswith("llguidance@")
    assert wheel.release == "1.9.1"
    assert len(wheel.sha256) == 64
    assert engine.load(wheel.path) is wheel
    assert engine.load(str(wheel.path)) is wheel


def test_a_link_is_the_same_engine(wheel: Engine, tmp_path: Path) -> None:
    link = tmp_path / "link.so"
    link.symlink_to(wheel.path)
    assert engine.load(link) is wheel


def test_another_release_side_by_side(wheel: Engine, release: Engine) -> None:
    assert release.release in ("1.7.6", "1.9.0")
    assert release.sha256 != wheel.sha256
    with byte_tokenizer(wheel) as ours, byte_tokenizer(release) as theirs:
        for grammar in GRAMMARS:
            with ours.matcher(grammar) as a, theirs.matcher(grammar) as b:
                for byte in (*b"b=1", 256):
                    one, other = a.mask(), b.mask()
                    assert (one is None) == (other is None)
                    if one is None or other is None:
                        break
                    assert np.array_equal(one, other), grammar
                    valid = a.validate([byte])
                    assert b.validate([byte]) == valid
                    if valid == 1:
                        assert a.consume(byte)
                        assert b.consume(byte)
                    assert a.is_accepting() == b.is_accepting()


def test_a_copy_is_another_engine(wheel: Engine, tmp_path: Path) -> None:
    copy = Path(shutil.copy(wheel.path, tmp_path / "copy.so"))
    other = engine.load(copy)
    assert other is not wheel
    assert other.sha256 == wheel.sha256
    assert other.version == wheel.version


def machine_of_this_file() -> bytes:
    return Path("/proc/self/exe").resolve().read_bytes()[:64]


def elf_for(machine: int) -> bytes:
    """Return the head of a shared library for another processor."""
    head = bytearray(machine_of_this_file())
    struct.pack_into("<H", head, 18, machine)
    return bytes(head) + bytes(4096)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"int main(void) { return 0; }\n" * 99, "invalid ELF header"),
        (b"", "too short"),
        (b"\x7fELF", "too short"),
        (elf_for(0xF3), r"built for another machine \(ELF machine 243\)"),  # RISC-V
        (elf_for(0x14), r"built for another machine \(ELF machine 20\)"),  # PowerPC
    ],
)
def test_a_file_that_is_no_library(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    with pytest.raises(EngineError, match=why) as caught:
        engine.load(path)
    assert str(caught.value).startswith(f"{path}: cannot serve as an engine: ")
    assert str(caught.value).count(str(path)) == 1
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [60, 70, 200, 4096, 1_000_000, 7_000_000])
def test_a_library_cut_short_is_refused_before_it_kills(
    wheel: Engine, tmp_path: Path, size: int
) -> None:
    whole = wheel.path.read_bytes()
    assert size < len(whole)
    path = tmp_path / "part.so"
    path.write_bytes(whole[:size])
    with pytest.raises(EngineError, match=r"too short|cut short") as caught:
        engine.load(path)
    assert "\n" not in str(caught.value)


def test_a_library_without_the_functions() -> None:
    from ctypes.util import find_library

    name = find_library("m")
    assert name is not None
    loaded = subprocess.run(
        ["ldconfig", "-p"], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    path = next((line.split("=> ")[1] for line in loaded if name in line), None)
    if path is None:
        pytest.skip("ldconfig does not say where libm is")
    with pytest.raises(EngineError, match="it has no llg_new_tokenizer, so it is not a llguidance"):
        engine.load(path)


@given(st.data())
def test_no_damaged_head_ends_in_a_traceback(wheel: Engine, data: st.DataObject) -> None:
    """The file is not loaded: what the dynamic linker makes of it is its own."""
    head = bytearray(wheel.path.read_bytes()[:1000])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from([4, 5, 18, *range(32, 40), *range(54, 58), *range(64, 200)]))
        head[at] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lib.so"
        path.write_bytes(head)
        why = elf.fault(path)
    assert why is None or "\n" not in why


def test_a_link_to_itself_and_a_home_of_nobody(tmp_path: Path) -> None:
    (tmp_path / "loop.so").symlink_to("loop.so")
    for name in (str(tmp_path / "loop.so"), "~nobody-of-this-name/lib.so"):
        with pytest.raises(EngineError, match="no such library"):
            engine.load(name)


@pytest.mark.parametrize("version", ["1.6.1", "0.7.10"])
def test_releases_that_do_not_say_what_they_are(version: str, tmp_path: Path) -> None:
    """llg_get_version came with 1.7.5; the release is known by where the library lies."""
    found = fetched(version)
    assert found.version == ""
    assert found.release == version
    assert found.fallback_option is None
    with (
        byte_tokenizer(found) as tokenizer,
        tokenizer.matcher('start: "ab" /c*/') as matcher,
    ):
        assert matcher.consume_all(b"abc")
        assert matcher.is_accepting()
        allowed = matcher.allowed()
        assert allowed is not None
        assert allowed.tolist() == [ord("c"), 256]
        assert matcher.rollback(3)
        assert matcher.validate(list(b"abx")) == 2
        with matcher.clone() as other:
            assert other.consume(97)
    # A copy elsewhere says nothing; as in site-packages, the package's metadata does.
    copy = Path(shutil.copy(found.path, tmp_path / "copy.so"))
    assert engine.load(copy).release == "unknown"
    (tmp_path / "llguidance").mkdir()
    (tmp_path / "llguidance-1.2.3.dist-info").mkdir()
    assert engine.load(copy.rename(tmp_path / "llguidance" / "_lib.so")).release == "1.2.3"


def test_a_release_that_is_too_old() -> None:
    with pytest.raises(
        EngineError, match=r"it has no llg_new_matcher, which llguidance has since 0\.7\.10"
    ):
        fetched("0.7.1")


def test_a_version_that_is_null(wheel: Engine, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    source = tmp_path / "null.c"
    names = [
        "new_tokenizer", "free_tokenizer", "constraint_init_set_defaults", "new_matcher",
        "clone_matcher", "free_matcher",
        *(f"matcher_{name}" for name in (
            "get_error", "compute_mask", "get_mask", "get_mask_byte_size", "consume_token",
            "validate_tokens", "compute_ff_tokens", "rollback", "reset", "is_accepting",
            "is_stopped",
        )),
    ]  # fmt: skip
    source.write_text(
        "const char *llg_get_version(void) { return 0; }\n"
        + "".join(f"void llg_{name}(void) {{}}\n" for name in names)
    )
    path = tmp_path / "null.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source], check=True)
    assert engine.load(path).version == ""
    assert engine.load(path).release == "unknown"


def fetched(version: str) -> Engine:
    try:
        path = wheels.fetch_release(version)
    except PackageIndexError as error:
        pytest.skip(f"llguidance {version} cannot be fetched: {error}")
    return engine.load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "x.so", tmp_path, tmp_path / ("x" * 300)):
        with pytest.raises(EngineError, match="no such library"):
            engine.load(path)


# ---- the fallback ----


def test_a_stock_engine_has_no_fallback(wheel: Engine) -> None:
    assert wheel.fallback_option is None


def test_other_releases_have_no_fallback(release: Engine) -> None:
    assert release.fallback_option is None


def test_no_backtrace_is_captured_whatever_the_shell_says(wheel: Engine) -> None:
    code = (
        "import os, sys; from llgbench.engines import engine; engine.load(sys.argv[1]); "
        "print([name for name in os.environ if name.endswith('BACKTRACE')])"
    )
    environment = {**os.environ, "RUST_BACKTRACE": "1", "RUST_LIB_BACKTRACE": "full"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(wheel.path)],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("option", [*FALLBACK_OPTIONS, "no_such_option"])
def test_a_stock_engine_takes_the_option_and_does_nothing(
    byte_tokenizer: Tokenizer, option: str
) -> None:
    """Which is why the option proves nothing."""
    grammar = 'start: STEM SUFFIX\nSTEM: "list" | "listen"\nSUFFIX: "ed"\n'
    masks = []
    for options in ("{}", f'{{"{option}": true}}'):
        with byte_tokenizer.matcher(f"%llguidance {options}\n{grammar}") as matcher:
            assert matcher.error() is None
            of_this: list[list[int]] = []
            for byte in b"listed":
                mask = matcher.mask()
                assert mask is not None
                of_this.append(mask.tolist())
                if matcher.validate([byte]) != 1:
                    break
                assert matcher.consume(byte)
            masks.append(of_this)
            assert not matcher.is_accepting()
    assert masks[0] == masks[1]
    assert len(masks[0]) == 6  # refused at "d"


# ---- tokenizers ----


def test_the_end_token_is_allowed_where_the_text_may_end(byte_tokenizer: Tokenizer) -> None:
    with byte_tokenizer.matcher("start: /a*/") as matcher:
        allowed = matcher.allowed()
        assert allowed is not None
        assert allowed.tolist() == [ord("a"), 256]


def test_no_end_token(wheel: Engine) -> None:
    lens = np.ones(2, np.uint32)
    with (
        Tokenizer(wheel, lens, np.frombuffer(b"ab", np.uint8), INVALID_TOKEN) as tokenizer,
        tokenizer.matcher("start: /a*/") as matcher,
    ):
        allowed = matcher.allowed()
        assert allowed is not None
        assert allowed.tolist() == [0]


def test_an_end_token_beyond_the_vocabulary_is_refused(wheel: Engine) -> None:
    with pytest.raises(EngineError, match="no tokenizer"):
        Tokenizer(wheel, np.ones(2, np.uint32), np.frombuffer(b"ab", np.uint8), 2)


# ---- grammars ----


@pytest.mark.parametrize(
    "grammar",
    [
        "",
        'start: "a',
        "start: nowhere",
        'begin: "a"',
        "start: /(/",
        'start: %json {"type": 5}',
        'start: %json {"type": "no-such-type"}',
        'start: %json {"not": {"type": "string"}}',
        '%llguidance {broken\nstart: "a"',
    ],
)
def test_a_grammar_that_does_not_compile(byte_tokenizer: Tokenizer, grammar: str) -> None:
    with pytest.raises(GrammarError) as caught:
        byte_tokenizer.matcher(grammar)
    assert str(caught.value).strip()


def test_a_grammar_is_never_cut_short(byte_tokenizer: Tokenizer) -> None:
    """C ends a string at a NUL: without a check the rest would vanish."""
    with pytest.raises(GrammarError, match="NUL byte, in line 2"):
        byte_tokenizer.matcher('start: "a"\n\0 nonsense')
    with pytest.raises(GrammarError, match="not UTF-8"):
        byte_tokenizer.matcher('start: "\ud800"')


def test_an_unknown_kind(byte_tokenizer: Tokenizer) -> None:
    with pytest.raises(GrammarError, match="unknown constraint type"):
        byte_tokenizer.matcher('start: "a"', "no_such_kind")


def test_other_kinds(byte_tokenizer: Tokenizer) -> None:
    with byte_tokenizer.matcher('{"enum": ["a"]}', "json_schema") as matcher:
        assert matcher.consume_all(b'"a"')
    with byte_tokenizer.matcher("ab+", "regex") as matcher:
        assert matcher.consume_all(b"abb")


# ---- matchers ----


def test_consume_and_its_fellows(byte_tokenizer: Tokenizer) -> None:
    with byte_tokenizer.matcher('start: "ab" /c*/') as matcher:
        assert matcher.compile_ns > 0
        assert matcher.validate(list(b"abx")) == 2
        assert matcher.validate([]) == 0
        assert not matcher.is_accepting()
        assert matcher.consume_all(b"ab")
        assert matcher.is_accepting()
        assert not matcher.is_stopped()
        assert matcher.rollback(1)
        allowed = matcher.allowed()
        assert allowed is not None
        assert allowed.tolist() == [ord("b")]
        assert not matcher.consume_all(b"bcx")
        assert matcher.is_accepting()
        assert matcher.consume(256)
        assert matcher.is_stopped()
        assert matcher.reset()
        assert matcher.validate(list(b"abx")) == 2


def test_the_error_state(byte_tokenizer: Tokenizer) -> None:
    with byte_tokenizer.matcher('start: "ab"') as matcher:
        assert matcher.error() is None
        assert not matcher.consume(ord("x"))
        assert "doesn't satisfy the grammar" in (matcher.error() or "")
        assert matcher.mask() is None
        assert matcher.allowed() is None
        assert matcher.validate([97]) == -1
        assert matcher.forced() == []
        assert matcher.is_stopped()
        assert not matcher.reset()
        assert not matcher.rollback(1)


def test_a_clone_is_independent(byte_tokenizer: Tokenizer) -> None:
    with byte_tokenizer.matcher("start: /[ab]{2}/") as matcher:
        matcher.consume(97)
        with matcher.clone() as other:
            assert other.consume(98)
            assert other.is_accepting()
            assert not matcher.is_accepting()
        assert matcher.consume(97)


def test_a_mask_is_a_copy(byte_tokenizer: Tokenizer) -> None:
    with byte_tokenizer.matcher('start: "ab"') as matcher:
        mask = matcher.mask()
        assert mask is not None
        assert mask.shape == (9,)
        assert mask.dtype == np.uint32
        before = mask.copy()
        matcher.consume(97)
        matcher.mask()
        assert np.array_equal(mask, before)


# ---- handles ----


def test_close_twice_and_use_after_close(wheel: Engine) -> None:
    tokenizer = byte_tokenizer(wheel)
    matcher = tokenizer.matcher('start: "a"')
    matcher.close()
    matcher.close()
    for use in (
        matcher.mask,
        matcher.allowed,
        matcher.error,
        matcher.clone,
        matcher.forced,
        matcher.reset,
        matcher.is_accepting,
        matcher.is_stopped,
        lambda: matcher.consume(97),
        lambda: matcher.validate([97]),
        lambda: matcher.rollback(1),
    ):
        with pytest.raises(ValueError, match="Matcher is closed"):
            use()
    tokenizer.close()
    tokenizer.close()
    with pytest.raises(ValueError, match="Tokenizer is closed"):
        tokenizer.matcher('start: "a"')


def test_a_matcher_outlives_its_tokenizer(wheel: Engine) -> None:
    """llguidance counts references: closing the tokenizer's handle is safe."""
    tokenizer = byte_tokenizer(wheel)
    matcher = tokenizer.matcher('start: "ab"')
    clone = matcher.clone()
    tokenizer.close()
    del tokenizer
    gc.collect()
    for each in (matcher, clone):
        assert each.consume_all(b"ab")
        each.close()


def test_a_with_block_closes(wheel: Engine) -> None:
    with byte_tokenizer(wheel) as tokenizer:
        with tokenizer.matcher('start: "a"') as matcher:
            pass
        with pytest.raises(ValueError, match="closed"):
            matcher.mask()
    with pytest.raises(ValueError, match="closed"):
        tokenizer.matcher('start: "a"')


def test_building_and_closing_leaks_nothing(wheel: Engine) -> None:
    def rounds(n: int) -> None:
        for _ in range(n):
            with byte_tokenizer(wheel) as tokenizer:
                for grammar in GRAMMARS[:2]:
                    with tokenizer.matcher(grammar) as matcher:
                        matcher.mask()
                        matcher.clone().close()

    def handles() -> int:
        gc.collect()
        return sum(isinstance(o, (Tokenizer, Matcher)) for o in gc.get_objects())

    rounds(50)  # allocators and thread pools take what they need
    objects, memory = handles(), resident_kib()
    rounds(200)
    assert handles() == objects
    assert resident_kib() - memory < 8 * 1024  # 200 leaked tokenizers alone take more


def test_what_is_dropped_is_freed(wheel: Engine) -> None:
    def rounds(n: int) -> None:
        for _ in range(n):
            byte_tokenizer(wheel).matcher(GRAMMARS[0]).mask()

    rounds(50)
    gc.collect()
    memory = resident_kib()
    rounds(200)
    gc.collect()
    assert resident_kib() - memory < 8 * 1024
