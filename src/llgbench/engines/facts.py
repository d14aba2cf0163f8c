"""What an engine is and can do, found in a process of its own: a library runs code as it loads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from llgbench import isolated
from llgbench.engines import engine
from llgbench.errors import EngineError, ProcessError
from llgbench.isolated import Limits

# To load and to be asked takes a second or two; what is slower hangs.
_SECONDS = 60.0


@dataclass(frozen=True)
class Facts:
    """An engine that has loaded.

    Attributes:
        release: llguidance's release.
        sha256: of the library, in hex.
        fallback_option: the grammar option that turns the greedy lexeme fallback on; None where it
            has none, by what it does.
    """

    release: str
    sha256: str
    fallback_option: str | None


@cache
def facts(library: Path) -> Facts:
    """Return what an engine is and can do; this process does not load it.

    Raises:
        EngineError: it cannot serve, or does not survive being asked.
    """
    try:
        return isolated.call_within(Limits.default(_SECONDS), examine, library)
    except ProcessError as error:
        raise EngineError(f"{library}: cannot serve as an engine: {error}") from None


def examine(library: Path) -> Facts:
    """Load an engine in this process; see :func:`facts`.

    Raises:
        EngineError: it cannot serve.
    """
    loaded = engine.load(library)
    return Facts(loaded.release, loaded.sha256, loaded.fallback_option)
