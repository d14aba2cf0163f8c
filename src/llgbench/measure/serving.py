"""A worker's end of a job: JSON in, JSON out; workers.spawn is the other."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llgbench import isolated
from llgbench.errors import LlgbenchError


def serve(work: Callable[[Path], dict[str, Any]]) -> None:
    """Do the job in the file of the first argument, write the result to that of the second.

    A third argument is the parent, with which the process ends. A job that is refused ends the
    process with status 2 and one line; there is no result then.
    """
    if len(sys.argv) > 3:
        isolated.enter(int(sys.argv[3]))
    try:
        result = work(Path(sys.argv[1]))
    except LlgbenchError as error:
        from llgbench import output  # the terminal's library: a third of a worker's imports

        output.say(" ".join(str(error).split()))
        sys.exit(output.EXIT_BAD_INPUT)
    Path(sys.argv[2]).write_text(json.dumps(result))
