from __future__ import annotations

import pytest

from llgbench import errors
from llgbench.errors import LlgbenchError, UnknownNameError


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.UnknownNameError, LookupError),
        (errors.CaseError, ValueError),
        (errors.GrammarError, ValueError),
        (errors.VocabError, ValueError),
        (errors.EngineError, OSError),
        (errors.UnavailableError, RuntimeError),
        (errors.RecordError, ValueError),
        (errors.InputError, ValueError),
    ],
)
def test_every_error_is_ours_and_a_builtin(
    kind: type[LlgbenchError], builtin: type[Exception]
) -> None:
    assert issubclass(kind, LlgbenchError)
    assert issubclass(kind, builtin)


def test_a_message_is_shown_as_it_is() -> None:
    # KeyError would show its repr, OSError an errno.
    assert str(errors.EngineError("x.so: no such library")) == "x.so: no such library"
    assert str(UnknownNameError("vocab", "x", [])).startswith("unknown vocab 'x'")


def test_near_names_come_first() -> None:
    text = str(UnknownNameError("vocab", "llama-bp", ["qwen2", "llama-bpe", "llama-spm"]))
    assert text == "unknown vocab 'llama-bp'; did you mean llama-bpe or llama-spm?"


def test_all_names_where_none_is_near() -> None:
    text = str(UnknownNameError("variant", "zzz", iter(["baseline", "sentinel"])))
    assert text == "unknown variant 'zzz'; known: baseline, sentinel"


def test_no_names_at_all() -> None:
    assert "there is no case here at all" in str(UnknownNameError("case", "zzz", ()))
