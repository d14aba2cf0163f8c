"""The line of a program's standard error that says why it ended."""

from __future__ import annotations

import pytest

from llgbench.last_words import last_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "terminate called after throwing an instance of 'std::out_of_range'\n"
            "  what():  unordered_map::at\n",
            "std::out_of_range: unordered_map::at",
        ),
        (
            "thread '<unnamed>' panicked at src/a.rs:3:5:\nindex out of bounds\n"
            "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
            "panic at src/a.rs:3:5: index out of bounds",
        ),
        ("memory allocation of 12 bytes failed\n", "memory allocation of 12 bytes failed"),
        (
            "\nthread 'main' has overflowed its stack\nfatal runtime error: stack overflow\n",
            "thread 'main' has overflowed its stack",
        ),
        ("==123== valgrind's own line\n", ""),
    ],
)
def test_the_line_that_says_why_is_found(text: str, words: str) -> None:
    assert last_words(text) == words
