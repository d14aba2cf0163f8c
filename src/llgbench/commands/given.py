"""Options that have no effect beside others: refused, since whoever gives one expects an effect."""

from __future__ import annotations

import click
from click.core import ParameterSource

from llgbench.errors import InputError


def refuse(why: str, *names: str) -> None:
    """Refuse parameters of the running command where the user gave them.

    Args:
        why: what follows the option's name, such as ``goes with --pr``.
        names: of the parameters, as the command's function has them.

    Raises:
        InputError: one of them was given.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is ParameterSource.COMMANDLINE:
            raise InputError(f"{parameter.opts[0]} {why}")
