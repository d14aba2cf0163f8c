"""What ``llgbench compare`` and ``llgbench pr`` share: their options, and from options to a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from llgbench import output
from llgbench.commands.options import FiniteFloat

if TYPE_CHECKING:
    from llgbench.compare.comparison import Comparison

# A week; what is meant to run longer is a mistake.
MAX_BUDGET_S = 604_800

_Command = TypeVar("_Command", bound=Callable[..., object])

_OPTIONS = (
    click.option("--case", "cases", multiple=True, help="Default: the quick profile's; repeat."),
    click.option("--vocab", "vocabs", multiple=True, help="Default: llama-bpe; repeat."),
    click.option(
        "--variant", default="greedy_tokenize", show_default=True, help="Bridge of both sides."
    ),
    click.option(
        "--threshold",
        type=FiniteFloat(0, 1),
        help="Least change of interest.  [default: 0.02; --count: 0.005]",
    ),
    click.option(
        "--budget",
        type=FiniteFloat(5, MAX_BUDGET_S),
        default=300.0,
        show_default=True,
        help="Seconds in all, but for builds.",
    ),
    click.option("--count", is_flag=True, help="Count instructions (callgrind); they decide."),
    click.option("--where-equal", is_flag=True, help="Compare the cases whose masks agree."),
)


def comparison_options(command: _Command) -> _Command:
    """Give a command the options of a comparison, in the fields of :class:`Wanted`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options of a comparison as given."""

    cases: tuple[str, ...]
    vocabs: tuple[str, ...]
    variant: str
    threshold: float | None
    budget: float
    count: bool
    where_equal: bool

    def run(self, base: str, head: str | None, folder: Path | None) -> tuple[Comparison, Path]:
        """Compare; return what was found and the folder of its files."""
        from llgbench.compare import run as compare

        plan = compare.plan_of(
            self.cases, self.vocabs, self.variant, self.threshold, self.budget,
            unequal=self.where_equal, count=self.count,
        )  # fmt: skip
        with output.moving("comparing") as progress:
            return compare.run(
                base, head, plan, folder, count=self.count, say=progress, announce=output.say
            )
