"""Engines as they are written on a command line: ``ENGINE`` or ``ENGINE+fallback=on``.

ENGINE is a name, ``pypi:VERSION``, ``git:PATH@REV``, or the path of a library. Pure: nothing is
looked up here, let alone loaded.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from llgbench.errors import InputError

WHEEL = "wheel"
STOCK = "stock"
FIRST_BYTE = "first-byte"
FALLBACK = "fallback"
BUILT = (STOCK, FIRST_BYTE, FALLBACK)
PYPI = "pypi:"
GIT = "git:"

# A path may contain the same words.
_SUFFIX = re.compile(r"\+fallback=([^/@+]*)$")


@dataclass(frozen=True)
class EngineSpec:
    """An engine as given.

    Attributes:
        name: without what is switched on.
        fallback: whether the greedy lexeme fallback is asked for; None where nothing is said.
    """

    name: str
    fallback: bool | None = None

    @property
    def published(self) -> bool | None:
        """Whether it is a published wheel; None where nothing says how it was built."""
        if self.name == WHEEL or self.name.startswith(PYPI):
            return True
        return False if self.name in BUILT or self.name.startswith(GIT) else None


def parse(text: str) -> EngineSpec:
    """Read a specification; a file of that very name is the library, whatever it looks like.

    Raises:
        InputError: what follows ``+fallback=`` is neither on nor off.
    """
    suffix = _SUFFIX.search(text)
    if suffix is None or os.path.isfile(text):
        return EngineSpec(text)
    if suffix[1] not in ("on", "off"):
        raise InputError(f"{text!r}: fallback is on or off")
    return EngineSpec(text[: suffix.start()], suffix[1] == "on")
