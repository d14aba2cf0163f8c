"""The process that loads what is foreign: a GGUF by llama.cpp, engines; one vocab per worker.

Started by the supervisor as ``python -m llgbench.measure.worker PARENT``. It reads groups from
standard input and answers on what was standard output, which it keeps for itself: what a library
prints goes to standard error.
"""

from __future__ import annotations

import os
import sys
from typing import IO

from llgbench import isolated
from llgbench.errors import LlgbenchError
from llgbench.files import one_line
from llgbench.measure import group, messages
from llgbench.measure.messages import Doing, Group, Setup, Stage, VocabRefused
from llgbench.measure.runner import Tally, Workbench


def main() -> None:
    """Serve groups until there are no more."""
    answers = os.fdopen(os.dup(1), "wb")
    isolated.enter(int(sys.argv[1]))
    setup = messages.read(sys.stdin.buffer, Setup)
    if setup is None:
        return
    isolated.limit_memory(setup.memory_mib)
    _serve(setup, answers)


def _serve(setup: Setup, answers: IO[bytes]) -> None:
    tally = Tally()
    stage = Stage(setup.stage)
    stage.set(Doing.OPENING)
    try:
        bench = Workbench(setup.vocab, tally)
    except LlgbenchError as error:
        _answer(answers, VocabRefused(one_line(error)))
        return
    with bench:
        stage.set(Doing.IDLE)
        while (task := messages.read(sys.stdin.buffer, Group)) is not None:
            for answer in group.run(task, bench, tally, stage):
                _answer(answers, answer)
            stage.set(Doing.IDLE)


def _answer(answers: IO[bytes], message: messages.Answer) -> None:
    answers.write(messages.encode(message))
    answers.flush()


if __name__ == "__main__":
    main()
