"""The errors a user can cause, each a subclass of the builtin it is a case of.

The command line prints any :class:`LlgbenchError` as one line and exits with status 2. Everything
else that the machine does not refuse is a defect of llgbench: status 70, see defects.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LlgbenchError(Exception):
    """Base of all errors that are the input's fault; the message says what to do."""


class UnknownNameError(LlgbenchError, LookupError):
    """A vocab, case, variant or engine of that name does not exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        if near:
            remedy = f"did you mean {' or '.join(near)}?"
        else:
            remedy = f"known: {', '.join(known)}" if known else f"there is no {kind} here at all"
        super().__init__(f"unknown {kind} {name!r}; {remedy}")


class FileError(LlgbenchError, ValueError):
    """A file cannot be read or written, or does not hold what was expected."""


class ProcessError(LlgbenchError, ChildProcessError):
    """A process could not be started, or ended before it had done what it was asked to do."""


class CaseError(LlgbenchError, ValueError):
    """A case folder, its case.toml or one of its texts cannot be used."""


class GrammarError(LlgbenchError, ValueError):
    """llguidance does not compile the grammar; the message carries its own words."""


class VocabError(LlgbenchError, ValueError):
    """A GGUF vocabulary is missing, altered, truncated or unusable."""


class EngineError(LlgbenchError, OSError):
    """A shared library cannot serve as an engine."""


class PackageIndexError(LlgbenchError, OSError):
    """The package index cannot be read, or a file of it is not what it should be."""


class ModelError(LlgbenchError, ValueError):
    """A model is missing, truncated, or not for the vocabulary in question."""


class UnavailableError(LlgbenchError, RuntimeError):
    """The configuration cannot run here; the message says why and what would make it run."""


class RecordError(LlgbenchError, ValueError):
    """A record file cannot be read, or results cannot be written."""


class InputError(LlgbenchError, ValueError):
    """An option or argument has a value that cannot be used."""


class CompareError(LlgbenchError, RuntimeError):
    """Two engines could not be compared."""
