"""The command line: the commands put together, and how errors reach the user."""

from __future__ import annotations

import errno
import os
import resource
import sys

import click

import llgbench
from llgbench import defects, files, output, processes
from llgbench.commands.alerts import alerts_command, asv_command
from llgbench.commands.batch import batch_command
from llgbench.commands.check import check
from llgbench.commands.compare import compare_command
from llgbench.commands.decode import decode_command
from llgbench.commands.doctor import doctor_command
from llgbench.commands.engine import engine_group
from llgbench.commands.masks import masks_command
from llgbench.commands.overhead import overhead_command
from llgbench.commands.peers import peers_command
from llgbench.commands.pr import pr_command
from llgbench.commands.report import report_command
from llgbench.commands.run import run
from llgbench.commands.site import site_command
from llgbench.commands.sweep import sweep_command
from llgbench.commands.verify import verify_command
from llgbench.commands.vocab import vocab_group
from llgbench.errors import InputError, LlgbenchError

# What an address space must hold. With less NumPy's BLAS ends the process by itself, with status
# 1, and an engine that gets no memory drops its grammar, which would be a verdict.
_LEAST_MIB = 512

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

    Exit status: 0 all well, 1 something is slower or not as recorded, 2 the input cannot be used,
    70 a defect of llgbench itself.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_MIB << 20:
        raise InputError(
            f"the address space of this process is limited to {limit >> 20} MiB, which is too "
            f"little; allow {_LEAST_MIB} MiB or more (ulimit -v {_LEAST_MIB << 10})"
        )


for _command in (
    vocab_group,
    engine_group,
    check,
    run,
    compare_command,
    masks_command,
    pr_command,
    alerts_command,
    asv_command,
    site_command,
    report_command,
    overhead_command,
    peers_command,
    sweep_command,
    doctor_command,
    decode_command,
    batch_command,
    verify_command,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line; whatever goes wrong ends in one line and an exit status."""
    output.prepare_streams()
    processes.handle_signals()
    status = _status()
    try:
        sys.stdout.flush()
    except OSError:
        output.drop_stdout()
    sys.exit(status)


def _invoke() -> int:
    stdout = sys.stdout
    try:
        status = cli.main(standalone_mode=False)
    except SystemExit as error:
        status = error.code
    if sys.stdout is not stdout:
        # Where the reader has gone click puts another there, and ends with what is no difference.
        return output.EXIT_BAD_INPUT
    return status if isinstance(status, int) else 0


def _status() -> int:
    try:
        status = _invoke()
        output.flush()
        return status
    except LlgbenchError as error:
        _complain(str(error))
    except click.ClickException as error:
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f" (see {error.ctx.command_path} --help)"
        _complain(f"{error.format_message()}{hint}")
    except (KeyboardInterrupt, click.Abort):
        _complain("interrupted; nothing half-written is left behind")
    except BrokenPipeError:
        # The reader of our output has gone; what is left to say is for nobody.
        output.drop_stdout()
    except OSError as error:
        if error.errno not in _ENVIRONMENT and error.filename is None:
            return _defect(error)
        place = "cannot read or write"
        if isinstance(error.filename, str | bytes):
            place = os.fsdecode(error.filename)
        _complain(f"{place}: {error.strerror or error}")
    except MemoryError:
        _complain("out of memory; give fewer or smaller inputs, or fewer rounds")
    except ImportError as error:
        # NumPy explains itself at length; the reason is what it was raised from.
        why = error.__cause__ or error
        _complain(f"a package is missing or broken: {why}; install llgbench again")
    except UnicodeEncodeError as error:
        # A file's name whose bytes are no text cannot be handed on to a worker, nor into a file.
        _complain(f"{files.one_line(ascii(error.object), 120)} is not UTF-8; rename the file")
    except (RecursionError, UnicodeError) as error:
        # Foreign input, as a rule, that came by a way on which nobody names its file.
        deep = isinstance(error, RecursionError)
        what = "is nested too deeply" if deep else f"is not valid text: {error}"
        _complain(f"an input {what}{_kept(error)}")
    except RuntimeError as error:
        # Python has no other name for it.
        if str(error) != "can't start new thread":
            return _defect(error)
        _complain("no thread can be started; allow more processes (ulimit -u) or memory (-v)")
    except Exception as error:
        return _defect(error)
    return output.EXIT_BAD_INPUT


# What the system refuses whatever the program: no space, no quota, too large a file, no more
# descriptors or memory, a file system that is read-only or broken.
_ENVIRONMENT = frozenset(
    (
        errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
        errno.EROFS, errno.EIO, errno.EAGAIN,
    )
)  # fmt: skip


def _defect(error: Exception) -> int:
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    _complain(f"a defect of llgbench itself ({what}); please report it{_kept(error)}")
    return output.EXIT_DEFECT


def _kept(error: BaseException) -> str:
    path = defects.keep(error)
    return f"; the traceback is in {path}" if path is not None else ""


def _complain(message: str) -> None:
    output.say(f"llgbench: {' '.join(message.split())}")


if __name__ == "__main__":
    main()
