"""The types of options that commands share."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from llgbench.commands.options import FiniteFloat


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_finite_numbers_are_kept(value: float) -> None:
    assert FiniteFloat().convert(repr(value), None, None) == value


@pytest.mark.parametrize(
    "word", ["nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e999", "x", ""]
)
def test_what_is_no_finite_number_is_refused(word: str) -> None:
    for kind in (FiniteFloat(), FiniteFloat(min=0), FiniteFloat(max=1)):
        with pytest.raises(click.BadParameter, match="number"):
            kind.convert(word, None, None)


def test_the_range_holds_and_the_message_is_one_line() -> None:
    @click.command()
    @click.option("--threshold", type=FiniteFloat(min=0, max=1), default=0.5, show_default=True)
    def command(threshold: float) -> None:
        click.echo(threshold)

    run = CliRunner().invoke
    assert run(command, ["--threshold", "0.25"]).output == "0.25\n"
    for word in ("nan", "inf", "-1", "1.5"):
        done = run(command, ["--threshold", word])
        assert done.exit_code == 2
        assert "--threshold" in done.output.splitlines()[-1]
