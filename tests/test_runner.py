"""A vocab with its tokenizers, and what they are asked."""

from __future__ import annotations

import pytest
from conftest import Lab

from llgbench.errors import UnavailableError
from llgbench.inputs.variant import get
from llgbench.measure import runner
from llgbench.measure.runner import Workbench

pytestmark = pytest.mark.usefixtures("lab")


def test_a_workbench_builds_each_tokenizer_once(lab: Lab) -> None:
    with Workbench("llama-spm") as bench:
        first = bench.tokenizer(lab.engine, get("baseline"))
        assert bench.tokenizer(lab.engine, get("baseline")) is first
        with pytest.raises(UnavailableError):
            bench.tokenizer(lab.engine, get("greedy_lexeme_fallback"))
    with pytest.raises(ValueError, match="closed"):
        first.matcher('start: "a"')
    with pytest.raises(ValueError, match="closed"):
        bench.vocab.tokenize(b"a")


@pytest.mark.parametrize("variant", ["baseline", "token_to_piece"])
def test_wrong_tokens(lab: Lab, variant: str) -> None:
    found = runner.wrong_tokens(lab.vocab("llama-bpe"), get(variant))
    assert found == (117 if variant == "baseline" else 0)
