"""Where pip is configured to find packages: its files, then the environment."""

from __future__ import annotations

import ast
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from llgbench import processes
from llgbench.errors import UnavailableError

# pip has a default index and no command that names it.
_DEFAULT = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
_NO_PIP = (
    "this Python has no pip, which knows the package index; run: python -m ensurepip "
    "(or uv pip install pip), or name an index by PIP_INDEX_URL"
)


@dataclass(frozen=True)
class Settings:
    """What of pip's configuration says where files are and how they are reached."""

    indexes: tuple[str, ...]
    find_links: tuple[str, ...]
    cert: str | None
    proxy: str | None
    timeout_s: float
    trusted: frozenset[str]


@lru_cache(maxsize=1)
def settings() -> Settings:
    """Return the settings; read once.

    Raises:
        UnavailableError: pip does not say them, or there is neither pip nor PIP_INDEX_URL.
    """
    values = _configured()
    indexes = values.get("index-url", "").split() + values.get("extra-index-url", "").split()
    if values.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        indexes = []
    elif not values.get("index-url"):
        indexes = [_default_index(), *indexes]
    timeout = values.get("timeout") or values.get("default-timeout") or ""
    return Settings(
        tuple(dict.fromkeys(indexes)),
        tuple(values.get("find-links", "").split()),
        values.get("cert") or os.environ.get("REQUESTS_CA_BUNDLE"),
        values.get("proxy"),
        float(timeout) if re.fullmatch(r"\d{1,6}(\.\d+)?", timeout) else 60.0,
        frozenset(values.get("trusted-host", "").split()),
    )


def _configured() -> dict[str, str]:
    """Return pip's options by name: its configuration files, then the environment."""
    found: dict[str, str] = {}
    if _has_pip():
        done = processes.run([sys.executable, "-m", "pip", "config", "list"])
        if not done.ok:
            raise UnavailableError(f"pip config list fails: {done.words}")
        sections: dict[str, dict[str, str]] = {}
        for line in done.stdout.decode(errors="replace").splitlines():
            name, _, value = line.partition("=")
            section, _, option = name.rpartition(".")
            with suppress(ValueError, SyntaxError):  # a value stands there as Python writes it
                sections.setdefault(section, {})[option] = str(ast.literal_eval(value))
        for section in ("global", "download"):
            found |= sections.get(section, {})
    else:
        found["index-url"] = os.environ.get("UV_DEFAULT_INDEX", "")
    for name, value in os.environ.items():
        if name.startswith("PIP_") and value:
            found[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    return found


def _has_pip() -> bool:
    from importlib.util import find_spec

    return find_spec("pip") is not None


def _default_index() -> str:
    if not _has_pip():
        raise UnavailableError(_NO_PIP)
    done = processes.run([sys.executable, "-c", _DEFAULT])
    if not done.ok:
        raise UnavailableError(
            f"pip does not say what its package index is ({done.words}); name one by PIP_INDEX_URL"
        )
    return done.stdout.decode().strip()
