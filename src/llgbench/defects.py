"""Defects of llgbench itself: what is kept of one, for whoever reports it."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import tempfile
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import llgbench
from llgbench import paths


def keep(error: BaseException) -> Path | None:
    """Write an error's traceback into a log file; return it, None where no folder takes one.

    It lies in the user's cache, or in the folder for temporary files where that cannot be written.
    """
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
    text = "\n".join(
        (
            f"llgbench {llgbench.__version__}, Python {platform.python_version()}, "
            f"{platform.platform()}",
            f"command: {shlex.join(sys.argv)}",
            "",
            "".join(traceback.format_exception(error)),
        )
    )
    for folder in (_cached, _temporary):
        # Whatever is wrong here must not hide what is to be kept.
        with suppress(Exception):
            path = folder() / f"defect-{stamp}.log"
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
            return path
    return None


def _cached() -> Path:
    folder = paths.cache() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _temporary() -> Path:
    return Path(tempfile.gettempdir())
