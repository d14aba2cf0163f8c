"""Text that others wrote, as it can be shown: one line, nothing hidden in it, read by no markup."""

from __future__ import annotations


def visible(text: str) -> str:
    """Return text with line breaks, control characters and the like as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else escaped(c) for c in text)


def escaped(character: str) -> str:
    """Return a character as Python's escape of it, such as ``\\\\x1b``."""
    return character.encode("unicode_escape").decode()


def in_markdown(text: str) -> str:
    """Return text for a cell or a title of Markdown: one line, in which no sign means anything."""
    line = visible(" ".join(text.split()))
    for sign in ("\\", "|", "<", "*", "`"):
        line = line.replace(sign, f"\\{sign}")
    return line


def in_code(text: str) -> str:
    """Return text for a code span in a cell of Markdown."""
    shown = text.replace("\n", "⏎").replace("`", "'").replace("|", "\\|")
    return "".join(c if c.isprintable() else "·" for c in shown)


def fence(lines: list[str]) -> str:
    """Return a fence for a code block of Markdown that none of the lines can close."""
    longest = max((len(run) for line in lines for run in _runs(line)), default=0)
    return "`" * max(3, longest + 1)


def _runs(line: str) -> list[str]:
    return "".join(c if c == "`" else " " for c in line).split()
