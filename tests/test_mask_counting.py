"""Counting masks step by step: under callgrind, as they are replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from llgbench.compare import mask_counting, masks
from llgbench.compare.mask_counting import Plan
from llgbench.engines import registry
from llgbench.errors import InputError, LlgbenchError
from llgbench.measure import callgrind

counts = pytest.mark.skipif(
    callgrind.missing() is not None, reason=callgrind.missing() or "counting works here"
)


def plan(*vocabs: str, case: str = "listed") -> Plan:
    return Plan(vocabs, (case,), None, "llama-bpe", "greedy_tokenize", 1)


@counts
@pytest.mark.usefixtures("_vocabs_here")
def test_every_mask_of_two_engines(tmp_path: Path) -> None:
    for name in ("stock", "first-byte"):
        try:
            registry.locate(name)
        except LlgbenchError as error:
            pytest.skip(str(error))
    done: list[tuple[int, int, str]] = []
    found = mask_counting.run(
        "stock", "first-byte", plan("llama-spm", "bert-bge", case="json-tool-call"),
        lambda *progress: done.append(progress),
    )  # fmt: skip
    assert sorted(done) == [(1, 2, done[0][2]), (2, 2, done[1][2])]
    (text,) = found.texts
    assert len(text.base) == len(text.head) > 100
    assert text.ratio < 0.95
    assert text.worst_so_far < 1.01
    assert found.differences == ()
    assert found.verified > len(text.base)
    (refused,) = found.refused
    assert refused.vocab == "bert-bge"
    assert "has no token for byte" in refused.why
    assert not found.failed
    masks.write(found, tmp_path / "masks.json")
    assert masks.read(tmp_path / "masks.json") == found


@counts
def test_a_library_beside_itself_is_refused() -> None:
    with pytest.raises(InputError, match="the same library"):
        mask_counting.run("wheel", "wheel", plan("llama-spm"))
