"""What each variant lets a synthetic model write."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_gguf_faults as gguf_files
from conftest import Lab
from made_gguf import BYTES

from llgbench.decode import verify
from llgbench.decode.verify import Verification
from llgbench.errors import UnknownNameError
from llgbench.inputs import case_file

THREE = ("baseline", "token_to_piece", "greedy_tokenize")


@pytest.fixture(scope="module")
def found(lab: Lab) -> dict[tuple[str, str], Verification]:
    listed = verify.verify(("llama-spm", "llama-bpe"), THREE)
    return {(v.vocab, v.variant): v for v in listed}


def test_the_baseline_fails_on_spm_and_drops_the_grammar(
    found: dict[tuple[str, str], Verification],
) -> None:
    baseline = found["llama-spm", "baseline"]
    assert (baseline.passed, baseline.cases) == (0, 3)
    assert baseline.dropped > 0
    assert baseline.errors > 0
    assert baseline.greedy is False
    assert not baseline.right
    assert baseline.expected


def test_exact_bytes_alone_do_not_help_on_spm(
    found: dict[tuple[str, str], Verification],
) -> None:
    assert found["llama-spm", "token_to_piece"].passed == 0


def test_greedy_tokenize_is_right_on_spm(found: dict[tuple[str, str], Verification]) -> None:
    greedy = found["llama-spm", "greedy_tokenize"]
    assert (greedy.passed, greedy.errors, greedy.dropped) == (3, 0, 0)
    assert greedy.greedy is True
    assert greedy.right


@pytest.mark.parametrize("variant", THREE)
def test_bpe_is_right_throughout(found: dict[tuple[str, str], Verification], variant: str) -> None:
    bpe = found["llama-bpe", variant]
    assert (bpe.passed, bpe.errors, bpe.dropped, bpe.greedy) == (3, 0, 0, False)


def test_what_cannot_run_says_why(lab: Lab) -> None:
    (fallback,) = verify.verify(("llama-spm",), ("greedy_lexeme_fallback",))
    if fallback.unavailable is not None:
        assert "greedy lexeme fallback" in fallback.unavailable
    else:
        assert fallback.right
    (bert,) = verify.verify(("bert-bge",), ("greedy_tokenize",))
    assert "no end token" in (bert.unavailable or "")


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(UnknownNameError):
        list(verify.verify(("llama-spm",), ("gready",)))


def test_only_a_schemas_white_space_is_tightened() -> None:
    literal = case_file.load("forced-literal")
    assert verify._tight(literal) is literal
    assert '"whitespace_flexible": false' in verify._tight(case_file.load("json-enum")).source


def test_a_vocab_that_llama_cpp_cannot_use_is_a_row(lab: Lab, tmp_path: Path) -> None:
    broken = tmp_path / "cut.gguf"
    broken.write_bytes(lab.vocab("llama-spm").path.read_bytes()[:5000])
    first, second = verify.verify((str(broken), "llama-spm"), ("greedy_tokenize",))
    assert "cut.gguf" in (first.unavailable or "")
    assert second.right


def test_a_vocab_that_kills_llama_cpp_is_a_row(lab: Lab, tmp_path: Path) -> None:
    broken = gguf_files.write(tmp_path / "twice.gguf", [*BYTES, b"on", b"on"])
    first, second = verify.verify((str(broken), "llama-spm"), ("greedy_tokenize",))
    assert first.unavailable == "llama.cpp: token 'on' is listed twice (256 and 257)"
    assert second.right
