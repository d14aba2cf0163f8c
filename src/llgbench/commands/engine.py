"""``llgbench engine``: name, add and build engines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from llgbench import output
from llgbench.engines.spec import BUILT
from llgbench.errors import InputError, LlgbenchError
from llgbench.output import json_option


@click.group("engine")
def engine_group() -> None:
    """Name, add and build engines: shared libraries with llguidance's C API."""


@engine_group.command("list")
@json_option
def engine_list(as_json: bool) -> None:
    """List the engines, what release each is, and whether it has the fallback (by behaviour)."""
    from llgbench.engines import registry
    from llgbench.engines.facts import facts

    rows = []
    for entry in registry.entries().values():
        row: dict[str, Any] = {
            "engine": entry.name, "spec": entry.spec, "release": None, "fallback": None,
            "sha256": None, "state": "here",
        }  # fmt: skip
        if entry.fault:
            row["state"] = entry.fault
        elif entry.path is None:
            row["state"] = f"not here; run: {entry.remedy}"
        else:
            try:
                about = facts(registry.locate(entry.name))
                row["release"], row["sha256"] = about.release, about.sha256[:12]
                row["fallback"] = about.fallback_option or "no"
            except LlgbenchError as error:
                row["state"] = str(error)
        rows.append(row)
    output.print_table(rows, as_json=as_json)


@engine_group.command("path")
@click.argument("name")
def engine_path(name: str) -> None:
    """Print the library of an engine: a name, pypi:VERSION, git:PATH@REV, or a path."""
    from llgbench.engines import registry
    from llgbench.engines.facts import facts

    path = Path(os.path.realpath(registry.locate(name, output.say)))
    facts(path)  # what cannot serve is not an engine
    _echo_path(path)


@engine_group.command("add")
@click.argument("name")
@click.argument("spec", required=False)
def engine_add(name: str, spec: str | None) -> None:
    """Register SPEC under NAME: pypi:VERSION, git:PATH@REV, or the path of a library.

    Or bring another engine, by one argument: xgrammar:VERSION (two libraries of published wheels),
    glrmask:VERSION or outlines:VERSION (crates, built by cargo).

    \b
    Examples:
      llgbench engine add old pypi:1.7.6
      llgbench engine add mine ../llguidance/target/release/libllguidance.so
      llgbench engine add xgrammar:0.2.9
    """
    from llgbench.engines import peers, registry

    other = peers.parse(spec or name)
    if other is not None:
        if spec is not None:
            raise InputError(f"{other} is its own name; run: llgbench engine add {other}")
        for path in peers.bring(other, output.say).paths:
            _echo_path(path)
        return
    if spec is None:
        raise InputError(
            f"{name} needs a specification, such as pypi:1.9.0; alone stands an engine other than "
            "llguidance, such as xgrammar:0.2.9"
        )
    entry = registry.add(name, spec, output.say)
    _echo_path(entry.path)


@engine_group.command("build")
@click.argument("flavours", nargs=-1, required=True, type=click.Choice(BUILT))
@click.option("--if-possible", is_flag=True, help="Where cargo is missing, say so and succeed.")
def engine_build_command(flavours: tuple[str, ...], if_possible: bool) -> None:
    """Build llguidance from its published crate by cargo: as it is, or with a patch.

    ``first-byte`` asks the parser only where a lexeme of the grammar can begin; its masks are
    stock's. ``fallback`` has the greedy lexeme fallback.

    The library is cached under a key of all its inputs; a second call only prints its path.
    """
    from llgbench.engines import build as engine_build
    from llgbench.engines import cargo

    missing = cargo.missing()
    if if_possible and missing is not None:
        output.say(f"engines {' and '.join(flavours)} are not built: {missing}")
        return
    for flavour in flavours:
        _echo_path(engine_build.build(flavour, report=output.say))


@engine_group.command("patch")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
def engine_patch(folder: Path) -> None:
    """Write the flavours first-byte and fallback as patches against the published crate.

    Each has three lines of context, and applies with ``git apply`` in the crate's folder; in a
    checkout of llguidance that is ``parser``. They also apply one after the other.
    """
    from llgbench import files
    from llgbench.engines import patch

    for name, content in patch.patches().items():
        files.write(folder / name, content)
        _echo_path(folder / name)


def _echo_path(path: Path | None) -> None:
    """Write a path as it is, whatever its bytes are."""
    click.echo(os.fsencode(path) if path is not None else "")
