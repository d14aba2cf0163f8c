"""Synthetic models and their files; what cannot be loaded is refused in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import Lab

from llgbench import paths
from llgbench.errors import InputError, ModelError, UnavailableError, UnknownNameError
from llgbench.llama import device, synthetic
from llgbench.llama.model import Context, Model
from llgbench.llama.synthetic import Shape, shape, synthesize

TINY = Shape("llama", 1, 64, 64, 2, 1, 32, tied=True)


def one_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.fixture(scope="session")
def tiny(lab: Lab) -> Path:
    """Return a synthetic model of a shape that is not offered, on llama-spm."""
    path = paths.cache() / "tiny.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    synthetic._write(path, "tiny", TINY, lab.vocab("llama-spm"))
    return path


def test_nano_is_made_once_and_named_by_content(lab: Lab) -> None:
    vocab = lab.vocab("llama-spm")
    path = synthesize("nano", vocab)
    before = path.stat().st_mtime_ns
    assert synthesize("nano", vocab) == path
    assert path.stat().st_mtime_ns == before
    assert path.name.startswith("synthetic-nano-llama-spm-")
    assert [p.name for p in path.parent.iterdir() if ".part" in p.name] == []
    other = synthetic.synthetic_path("tinyllama-1.1b", vocab)
    assert other.name.rpartition("-")[2] != path.name.rpartition("-")[2]


@pytest.mark.parametrize("name", ["llama-spm", "llama-bpe"])
def test_a_synthetic_model_has_its_vocab_and_says_what_it_is(lab: Lab, name: str) -> None:
    vocab = lab.vocab(name)
    with Model(synthesize("nano", vocab), "cpu", "nano") as loaded:
        loaded.require_vocab(vocab)
        facts = loaded.facts()
        assert loaded.label == "synthetic nano"
        assert facts["synthetic"] is True
        assert facts["parameters"] == shape("nano").parameters(vocab.n_tokens)
        assert facts["device"] == {"kind": "cpu"}


def test_sizes_are_those_of_the_published_models() -> None:
    # TinyLlama has 1,100,048,384 weights, Llama 3.2 1B 1,235,814,400 (model cards).
    assert shape("tinyllama-1.1b").parameters(32_000) == 1_100_048_384
    assert shape("llama-3.2-1b").parameters(128_256) == 1_235_814_400


def test_gemmas_shape_loads(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "gemma.gguf"
    small = Shape("gemma", 1, 64, 64, 2, 1, 64, tied=True)
    synthetic._write(path, "small", small, lab.vocab("llama-spm"))
    with Model(path) as loaded, Context(loaded, 256, threads=1) as context:
        assert context.length == 256
        assert loaded.description.startswith("gemma")


def test_another_vocab_is_refused(lab: Lab, tiny: Path) -> None:
    with Model(tiny) as loaded, pytest.raises(ModelError, match="32000 tokens") as error:
        loaded.require_vocab(lab.vocab("llama-bpe"))
    one_line(error)


def test_a_vocab_of_the_same_size_with_other_tokens_is_refused(
    lab: Lab, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other.gguf"
    data = tiny.read_bytes()
    assert "▁quick".encode() in data
    path.write_bytes(data.replace("▁quick".encode(), "▁quack".encode(), 1))
    with Model(path) as loaded, pytest.raises(ModelError, match="other bytes") as error:
        loaded.require_vocab(lab.vocab("llama-spm"))
    one_line(error)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_a_truncated_model_is_refused(tiny: Path, tmp_path: Path, share: float) -> None:
    path = tmp_path / "cut.gguf"
    shutil.copyfile(tiny, path)
    with path.open("r+b") as file:
        file.truncate(int(tiny.stat().st_size * share))
    with pytest.raises(ModelError, match=r"cut\.gguf: llama\.cpp does not load it") as error:
        Model(path)
    one_line(error)


def test_a_missing_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such model"):
        Model(tmp_path / "none.gguf")


def test_an_unknown_shape_is_refused(lab: Lab) -> None:
    with pytest.raises(UnknownNameError, match="did you mean nano"):
        synthesize("nan", lab.vocab("llama-spm"))


def test_no_memory_for_a_shape(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "available_memory", lambda: 2**29)
    with pytest.raises(UnavailableError, match="no memory for shape gemma-2b-like") as error:
        synthesize("gemma-2b-like", lab.vocab("llama-spm"))
    one_line(error)


def test_no_room_on_the_disk_leaves_nothing(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage)
    monkeypatch.setenv("LLGBENCH_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UnavailableError, match="are free; choose a smaller --shape"):
        synthesize("nano", lab.vocab("gpt-2"))
    assert list(tmp_path.iterdir()) == []


def test_a_context_no_memory_holds_is_refused(tiny: Path) -> None:
    with (
        Model(tiny) as loaded,
        pytest.raises(UnavailableError, match="no memory for a context") as error,
    ):
        Context(loaded, 2**26, 31)
    one_line(error)


def test_a_context_beyond_counting_is_refused(tiny: Path) -> None:
    with Model(tiny) as loaded, pytest.raises(InputError, match="too long"):
        Context(loaded, 2**30, 32)


def test_a_context_too_short_names_the_remedy(tiny: Path) -> None:
    with Model(tiny) as loaded, Context(loaded, 256, threads=1) as context:
        context.require(255, "it")
        with pytest.raises(InputError, match="--context 257 or more"):
            context.require(256, "it")


def test_cuda_is_refused_without_it(tiny: Path) -> None:
    from llama_cpp import llama_cpp as c

    if c.llama_supports_gpu_offload():
        pytest.skip("this llama.cpp has GPU offload")
    with pytest.raises(UnavailableError, match=r"built without GPU offload; docs/cuda\.md"):
        Model(tiny, "cuda")


def test_ggml_names_its_devices(tiny: Path) -> None:
    assert "CPU" in [name for name, _ in device._ggml_devices()]
