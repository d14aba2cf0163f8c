"""The command line: the commands put together, and how errors reach the user."""

from __future__ import annotations

import os
import sys

import click

import llgbench
from llgbench import output, processes
from llgbench.commands.alerts import alerts_command, asv_command
from llgbench.commands.check import check
from llgbench.commands.compare import compare_command
from llgbench.commands.decode import decode_command
from llgbench.commands.doctor import doctor_command
from llgbench.commands.engine import engine_group
from llgbench.commands.overhead import overhead_command
from llgbench.commands.report import report_command
from llgbench.commands.run import run
from llgbench.commands.verify import verify_command
from llgbench.commands.vocab import vocab_group
from llgbench.errors import LlgbenchError

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_CONTEXT)
@click.version_option(llgbench.__version__, prog_name="llgbench")
def cli() -> None:
    """Measure what constrained decoding costs, with a verdict beside every time.

    \b
    Examples:
      llgbench doctor                      what is here, what will be skipped
      llgbench check                       are the masks right?
      llgbench run --case json-tool-call   time one case under the four variants
      llgbench report                      tables and pictures of the newest record

    Exit status: 0 all well, 1 something is not as recorded, 2 the input cannot be used.
    """


for _command in (
    vocab_group,
    engine_group,
    check,
    run,
    compare_command,
    alerts_command,
    asv_command,
    report_command,
    overhead_command,
    doctor_command,
    decode_command,
    verify_command,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line; the user's mistakes end in one line and exit status 2."""
    processes.handle_signals()
    try:
        status = cli.main(standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except LlgbenchError as error:
        _fail(str(error))
    except click.ClickException as error:
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f" (see {error.ctx.command_path} --help)"
        _fail(f"{error.format_message()}{hint}")
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted; nothing half-written is left behind")
    except BrokenPipeError:
        # The reader of our output has gone; what is left to say is for nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(output.EXIT_BAD_INPUT)


def _fail(message: str) -> None:
    output.say(f"llgbench: {' '.join(message.split())}")
    sys.exit(output.EXIT_BAD_INPUT)


if __name__ == "__main__":
    main()
