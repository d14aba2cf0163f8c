"""Types of options that several commands share."""

from __future__ import annotations

import math
from typing import Any

import click


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
