"""What an engine can do, asked in a process of its own."""

from __future__ import annotations

from pathlib import Path

import faulty_engine
import pytest

from llgbench.engines import registry
from llgbench.engines.engine import Engine
from llgbench.engines.facts import facts
from llgbench.errors import EngineError


def test_a_stock_engine(wheel: Engine) -> None:
    path = registry.wheel_path()
    assert path is not None
    found = facts(path)
    assert found.release == wheel.release
    assert found.sha256 == wheel.sha256
    assert found.fallback_option is None


def test_the_fallback_is_found_by_what_an_engine_does() -> None:
    path = registry.entries()[registry.FALLBACK].path
    if path is None:
        pytest.skip("the engine with the fallback is not built")
    assert facts(path).fallback_option == "greedy_lexeme_fallback"


def test_a_library_that_aborts_is_one_line(tmp_path: Path) -> None:
    library = faulty_engine.build(tmp_path, "llg_new_tokenizer", "abort();")
    with pytest.raises(EngineError, match=r"cannot serve as an engine: killed by SIGABRT$"):
        facts(library)


def test_what_is_no_library_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(b"nothing")
    with pytest.raises(EngineError, match=r"x\.so"):
        facts(path)
