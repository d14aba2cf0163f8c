"""Files of somebody else, mutated: what is read of them is a case, or one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from conftest import FUZZ
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from llgbench.errors import LlgbenchError
from llgbench.inputs import case_text
from llgbench.inputs.case import Case

MUTATIONS = settings(
    max_examples=FUZZ,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

# What a mutation puts in: pieces of the formats, numbers at their limits, bytes that are no text.
PIECES = st.one_of(
    st.sampled_from(
        [
            *(bytes([byte]) for byte in b'"[]{}=,\n/@\0\xff'),
            *(b"[[texts]]\n", b"nan", b"inf", b"NaN", b"Infinity", b"true", b"1979-05-27", b"-1"),
            *(b"1e999", b"9" * 20, b"9" * 5000, b"\\ud800", b"..", b"[" * 2000, b"$n"),
            b'file = "/etc/passwd"\n',
        ]
    ),
    st.binary(max_size=4),
)


@st.composite
def mutated(draw: st.DrawFn, originals: tuple[str, ...]) -> bytes:
    data = draw(st.sampled_from(originals)).encode()
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        cut = draw(st.integers(0, 12))
        data = data[:start] + draw(PIECES) + data[start + cut :]
    return data


def fine(read: Callable[[], Sequence[Case]]) -> None:
    """Read a case and all that is made of it, or be told in one line."""
    said = "one line"
    try:
        for loaded in read():
            loaded.lark({"x": 1}).encode()
            assert len(loaded.digest) == 16
            assert sum(len(text.data) for text in loaded.texts) <= case_text.LIMIT
    except LlgbenchError as error:
        said = str(error)
    assert said
    assert "\n" not in said
