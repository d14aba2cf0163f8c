"""Engines from a llguidance checkout at a revision: ``git:PATH@REV``, built by cargo, cached.

The checkout is only read: the revision's files are taken by ``git archive`` into the cache. One
cargo target folder serves all revisions, so that their common dependencies are built once.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llgbench import paths
from llgbench.errors import EngineError, InputError, UnavailableError

PREFIX = "git:"
PACKAGE = "llguidance"
LIBRARY = "libllguidance.so"

# Works in llguidance's workspace, where the crate is parser/, and in the published crate alone.
BUILD = ("rustc", "--release", "--lib", "--package", PACKAGE, "--crate-type", "cdylib")


@dataclass(frozen=True)
class Revision:
    """One commit of a checkout.

    Attributes:
        repository: the checkout.
        name: the revision as given.
        commit: its full hash.
    """

    repository: Path
    name: str
    commit: str


def parse(spec: str) -> Revision:
    """Read ``git:PATH@REV``.

    Raises:
        InputError: it has no revision, PATH is no checkout, or REV is not in it.
    """
    path, at, name = spec.removeprefix(PREFIX).rpartition("@")
    if not at or not path or not name:
        raise InputError(f"{spec!r} is no revision of a checkout; write git:PATH@REV")
    repository = Path(path).expanduser().resolve()
    if not repository.is_dir() or _git(repository, "rev-parse", "--git-dir") is None:
        raise InputError(f"{path} is no git checkout")
    commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options",
                  f"{name}^{{commit}}")  # fmt: skip
    if commit is None:
        raise InputError(f"{path} has no revision {name!r}; fetch it there, or name another")
    return Revision(repository, name, commit)


def build(revision: Revision, report: Callable[[str], None]) -> Path:
    """Return the library of a revision, built where the cache has none.

    Raises:
        UnavailableError: there is no cargo.
        EngineError: the build fails; the message has cargo's last line and where the log is.
    """
    folder = paths.cache() / "git" / _key(revision)
    library = folder / LIBRARY
    if library.is_file():
        return library
    cargo = shutil.which("cargo")
    if cargo is None:
        raise UnavailableError(
            f"building {revision.name} takes cargo, and there is none on PATH; see https://rustup.rs"
        )
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    _extract(revision, source)
    report(f"building llguidance {revision.name} ({revision.commit[:10]}) by cargo")
    target = paths.cache() / "git" / "target"
    log = folder / "build.log"
    with log.open("w") as into:
        done = subprocess.run(
            [cargo, *BUILD], cwd=source, stdout=into, stderr=subprocess.STDOUT, check=False,
            env={**os.environ, "CARGO_TARGET_DIR": str(target), "CARGO_TERM_COLOR": "never"},
        )  # fmt: skip
    built = target / "release" / LIBRARY
    if done.returncode != 0 or not built.is_file():
        raise EngineError(
            f"cargo cannot build {revision.name} of {revision.repository}: {_last_words(log)}; "
            f"the log is {log}"
        )
    part = library.with_suffix(".part")
    shutil.copyfile(built, part)
    part.replace(library)
    shutil.rmtree(source)
    return library


def _key(revision: Revision) -> str:
    """Return the name of the revision's folder: the commit, and the compiler that builds it."""
    compiler = ""
    with suppress(OSError):
        compiler = subprocess.run(
            ["rustc", "-vV"], capture_output=True, text=True, check=False
        ).stdout
    inputs = f"{compiler}\0{os.environ.get('RUSTFLAGS', '')}"
    return f"{revision.commit[:16]}-{hashlib.sha256(inputs.encode()).hexdigest()[:8]}"


def _extract(revision: Revision, into: Path) -> None:
    done = subprocess.run(
        ["git", "-C", str(revision.repository), "archive", "--format=tar", revision.commit],
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        why = (done.stderr.decode(errors="replace").strip().splitlines() or ["git archive fails"])[
            -1
        ]
        raise EngineError(f"{revision.repository} at {revision.name}: {why}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        tar.extractall(into, filter="data")


def _last_words(log: Path, lines: int = 3, limit: int = 300) -> str:
    found = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(found[-lines:])[-limit:] or "no output"


def _git(repository: Path, *arguments: str) -> str | None:
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None
