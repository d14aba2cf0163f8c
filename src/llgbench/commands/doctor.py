"""``llgbench doctor``: what is here, and what will be skipped."""

from __future__ import annotations

from dataclasses import asdict

import click

from llgbench import output
from llgbench.output import json_option


@click.command("doctor")
@json_option
def doctor_command(as_json: bool) -> None:
    """Say what is here, and what will be skipped and why."""
    from llgbench.measure import doctor

    output.print_table([asdict(f) for f in doctor.examine()], as_json=as_json)
