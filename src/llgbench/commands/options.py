"""Types of options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from llgbench.isolated import Limits


class FiniteFloat(click.FloatRange):
    """A number within a range; NaN, which lies in every range, and infinities are refused.

    ``FiniteFloat(min=0, max=1)``; other arguments are those of :class:`click.FloatRange`.
    """

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number.

        Raises:
            click.BadParameter: it is not a number, not finite, or outside the range.
        """
        try:
            number = float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a number", param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        found: float = super().convert(value, param, ctx)
        return found


def numbers(least: int, most: int) -> Callable[[str], tuple[int, ...]]:
    """Return a type of option: whole numbers in a range, separated by commas, without repetitions.

    Raises:
        click.BadParameter: from what is returned, where a part is no such number.
    """

    def integers(value: str) -> tuple[int, ...]:
        found = []
        for part in map(str.strip, value.split(",")):
            if not (part.isascii() and part.isdecimal()) or not least <= int(part[:20]) <= most:
                raise click.BadParameter(f"{part!r} is not a whole number from {least} to {most}")
            found.append(int(part))
        return tuple(dict.fromkeys(found))

    return integers


_Command = TypeVar("_Command", bound=Callable[..., object])

# Of alerts and of the pages that show them.
since_tag_option = click.option(
    "--since-tag", is_flag=False, flag_value="", metavar="[TAG]",
    help="Compare with TAG, or with the last one, and not with the best earlier commits.",
)  # fmt: skip


def limit_options(seconds_help: str) -> Callable[[_Command], _Command]:
    """Give a command the options of a worker's limits, ``time_limit`` and ``memory_limit``."""

    def decorate(command: _Command) -> _Command:
        memory = click.option(
            "--memory-limit", type=click.IntRange(64, 1 << 24), metavar="MIB",
            help="Most memory for the process that measures; default: 3/4 of the machine's.",
        )  # fmt: skip
        time = click.option(
            "--time-limit", type=FiniteFloat(min=1, max=604_800), metavar="SECONDS",
            help=seconds_help,
        )  # fmt: skip
        return time(memory(command))

    return decorate


def limits(default_s: float, seconds: float | None, memory_mib: int | None) -> Limits:
    """Return the limits that the options ask for, the default where they ask for none."""
    from llgbench.isolated import Limits

    default = Limits.default(default_s)
    return Limits(seconds or default.seconds, memory_mib or default.memory_mib)
