"""Options that have no effect beside others: refused, since whoever gives one expects an effect."""

from __future__ import annotations

import click
from click.core import ParameterSource

from llgbench.errors import InputError


def refuse(why: str, *names: str) -> None:
    """Refuse parameters of the running command where the user gave them.

    Args:
        why: what follows the option's name, such as ``goes with --maskbench``.
        names: of the parameters, as the command's function has them.

    Raises:
        InputError: one of them was given.
    """
    for parameter in click.get_current_context().command.params:
        if parameter.name in names and was(parameter.name):
            raise InputError(f"{parameter.opts[0]} {why}")


def was(name: str) -> bool:
    """Return whether the user gave a parameter of the running command."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE
