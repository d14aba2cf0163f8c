"""Engines other than llguidance by name: what a specification means, and how they are brought."""

from __future__ import annotations

import pytest
from in_process import llgbench
from test_cli import refused

from llgbench.engines import peers, store
from llgbench.engines.peers import PeerSpec
from llgbench.errors import EngineError, InputError, LlgbenchError, UnavailableError


@pytest.mark.parametrize(
    "text", ["wheel", "stock", "pypi:1.9.0", "git:.@HEAD", "./x.so", "xgrammarly"]
)
def test_what_names_llguidance_is_none(text: str) -> None:
    assert peers.parse(text) is None


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("xgrammar:0.2.9", PeerSpec("xgrammar", "0.2.9")),
        ("xgrammar:0.2.9+lazy", PeerSpec("xgrammar", "0.2.9", lazy=True)),
        ("gbnf", PeerSpec("gbnf")),
        ("glrmask:0.5.0", PeerSpec("glrmask", "0.5.0")),
        ("outlines:0.2.14", PeerSpec("outlines", "0.2.14")),
    ],
)  # fmt: skip
def test_a_specification_is_read_and_written(text: str, spec: PeerSpec) -> None:
    assert peers.parse(text) == spec
    assert str(spec) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("xgrammar", "names no release; write xgrammar:VERSION"),
        ("xgrammar:", "names no release"),
        ("xgrammar:newest", "a version is like 0.2.9"),
        ("xgrammar:0.2.9+eager", "has no mode 'eager'"),
        ("glrmask:0.5.0+lazy", "+lazy is xgrammar's alone"),
        ("gbnf:1", "gbnf has no version"),
        ("gbnf+lazy", "gbnf has no mode"),
    ],
)  # fmt: skip
def test_what_is_no_specification_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("+", r"\+")):
        peers.parse(text)


def test_an_engine_that_is_not_here_says_how_it_comes() -> None:
    with pytest.raises(UnavailableError, match=r"run: llgbench engine add xgrammar:0\.0\.1"):
        peers.locate(PeerSpec("xgrammar", "0.0.1", lazy=True))


def test_a_release_that_does_not_exist_is_refused_and_leaves_nothing() -> None:
    spec = PeerSpec("xgrammar", "0.0.0")
    with pytest.raises(LlgbenchError, match=r"xgrammar 0\.0\.0"):
        peers.bring(spec, lambda _: None)
    assert spec not in list(peers.kept())


def test_xgrammar_comes_verified_and_is_kept(xgrammar: str) -> None:
    spec = peers.parse(xgrammar)
    assert spec is not None
    found = peers.locate(spec)
    assert [path.name for path in found.paths] == ["libtvm_ffi.so", "libxgrammar_bindings.so"]
    assert found.release.startswith("xgrammar 0.2.9 on apache-tvm-ffi ")
    assert spec in list(peers.kept())
    assert peers.bring(spec, pytest.fail) == found  # a second time nothing is fetched


def test_an_altered_library_is_not_loaded(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLGBENCH_CACHE", str(tmp_path))
    spec = PeerSpec("outlines", "1.2.3")
    library = peers._folder(spec) / "libllgbench_peer.so"
    store.keep(library, b"as built", "outlines-core 1.2.3")
    assert peers.locate(spec).release == "outlines-core 1.2.3"
    library.write_bytes(b"as altered")
    with pytest.raises(EngineError, match="altered"):
        peers.locate(spec)


def test_the_command_line_refuses_in_one_line() -> None:
    assert "xgrammar names no release" in refused("engine", "add", "xgrammar")
    assert "is its own name" in refused("engine", "add", "mine", "xgrammar:0.2.9")
    assert "needs a specification" in refused("engine", "add", "mine")
    assert "run: llgbench engine add" in refused("peers", "--engine", "xgrammar:0.0.1")
    assert "unknown engine" in refused("peers", "--engine", "xgramar", "--case", "listed")
    assert "unknown case" in refused("peers", "--engine", "gbnf", "--case", "list")
    assert "unknown vocab" in refused("peers", "--engine", "gbnf", "--vocab", "llama")


def test_the_doctor_names_what_is_here(xgrammar: str) -> None:
    done = llgbench("doctor")
    assert f"engine {xgrammar}" in done.stdout
    assert "engine gbnf" in done.stdout
