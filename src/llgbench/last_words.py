"""Why a program ended: the line of its standard error that says so."""

from __future__ import annotations

import re

_NOISE = re.compile(
    r"^==\d+==|^note: run with `RUST_BACKTRACE|^\s*$|^Aborted|^fatal runtime error: stack overflow"
)


def last_words(text: str) -> str:
    """Return the line of a program's standard error that says why it ended.

    Of a C++ exception that nobody caught it joins the type and the message, of a Rust panic the
    place and the message, of a ggml assertion the place without its folders; else it is the last
    line that is not about how to learn more.
    """
    thrown = re.findall(
        r"terminate called after throwing an instance of '([^']*)'(?:\s*what\(\):\s*(.*))?", text
    )
    if thrown:
        kind, message = thrown[-1]
        return f"{kind}: {message}".rstrip(": ")
    panics = re.findall(
        r"^thread '[^']*'(?: \(\d+\))? panicked at (\S+?):?\n(.*)", text, re.MULTILINE
    )
    if panics:
        place, message = panics[-1]
        return f"panic at {place}: {message.strip()}"
    asserted = re.findall(r"^(?:/\S*/)?(\S+\.(?:cpp|c|h|cu|m):\d+: .+)", text, re.MULTILINE)
    if asserted:
        return str(asserted[-1])
    lines = [line.strip() for line in text.splitlines() if not _NOISE.search(line)]
    return lines[-1] if lines else ""
