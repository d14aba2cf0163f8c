"""Commands and options that messages, help texts and documents name are there, spelled so."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from conftest import ROOT

from llgbench.commands.cli import cli

# What is named as a command: after "run", in code, in brackets, or at the beginning of a line.
NAMED = re.compile(
    r"(?:(?<=run )|(?<=run: )|(?<=`)|(?<=\()|^[ $]*)llgbench (?P<rest>[a-z-][^\n`]*)", re.M
)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
# Options of other programs that our messages name.
FOREIGN = {"--git", "--show-stderr", "--target-dir", "--yes"}
# The word in the head of a file.
FORMAT = "llgbench comparison"
SOURCES = sorted((ROOT / "src" / "llgbench").rglob("*.py"))
DOCUMENTS = [
    ROOT / "README.md", ROOT / "Makefile", *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / ".github").rglob("*.yml")), *sorted(ROOT.glob("*/README.md")),
]  # fmt: skip


def commands(owner: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with its name."""
    yield names, owner
    if isinstance(owner, click.Group):
        for name, command in owner.commands.items():
            yield from commands(command, *names, name)


OPTIONS = {
    spelled
    for _, command in commands(cli)
    for parameter in command.get_params(click.Context(command))
    for spelled in (*parameter.opts, *parameter.secondary_opts)
}


def strings(path: Path) -> Iterator[str]:
    """Yield the strings of a module, an f-string's values as X."""
    parts: set[ast.AST] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.value


def code(path: Path) -> Iterator[str]:
    """Yield the code of a document, a line that goes on in the next as one."""
    text = re.sub(r"\\\n *", "", path.read_text())
    if path.suffix != ".md":
        yield text
        return
    blocks = re.compile(r"^```.*?^```", re.M | re.S)
    yield from blocks.findall(text)
    yield from (span.replace("\n", " ") for span in re.findall(r"`[^`]+`", blocks.sub("", text)))


def understood(words: list[str]) -> str | None:
    """Return what click has against a command line, None where nothing."""
    command: click.Command = cli
    context = click.Context(cli, info_name="llgbench")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        found = command.get_command(context, name)
        if found is None:
            return f"no command {name!r}"
        command, context = found, click.Context(found, context, name)
    try:
        values, _, _ = command.make_parser(context).parse_args(words)
        for parameter in command.get_params(context):
            value = values.get(parameter.name or "")
            if isinstance(parameter.type, click.Choice) and isinstance(value, str) and value != "X":
                parameter.type.convert(value, parameter, context)
    except click.UsageError as error:
        return error.format_message()
    return None


def words_of(rest: str) -> list[str]:
    """Return the words of a command line that stands in a sentence, without what follows."""
    line = re.split(r"  |\s[#|>;&]|[,;)](?:\s|$)|\.(?:\s|$)|\s(?:again|and|or)\b", rest.rstrip())[0]
    try:
        return shlex.split(line)
    except ValueError:  # a quote that is closed on another line
        return line.split()


@pytest.mark.parametrize(
    "path", [*SOURCES, *DOCUMENTS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_what_is_named_is_there(path: Path) -> None:
    texts = strings(path) if path.suffix == ".py" else code(path)
    wrong = {
        match["rest"]: why
        for text in texts
        if text != FORMAT
        for match in NAMED.finditer(text)
        if (why := understood(words_of(match["rest"]))) is not None
    }
    assert not wrong


def test_options_in_messages_are_there() -> None:
    named = {
        option: path.name
        for path in SOURCES
        for text in strings(path)
        if " " in text.strip()
        for option in OPTION.findall(text)
    }
    assert named.keys() - OPTIONS == FOREIGN


def test_a_name_that_is_not_there_is_found() -> None:
    assert understood(["fetch"]) == "no command 'fetch'"
    assert understood(["vocab", "fetch"]) is None
    assert understood(["run", "--cases", "x"]) is not None
    assert understood(["run", "--profile", "slow"]) is not None
    [match] = NAMED.finditer("x is not fetched (llgbench fetch)")
    assert words_of(match["rest"]) == ["fetch"]
