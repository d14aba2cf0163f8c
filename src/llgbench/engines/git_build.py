"""Engines from a llguidance checkout at a revision: ``git:PATH@REV``, built by cargo, kept.

The checkout is only read: the revision's files are taken by ``git archive``. Building runs the
revision's build scripts; they see only the environment of engines/cargo.py, but all files.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from llgbench import files, git, paths
from llgbench.engines import cargo, store
from llgbench.engines.spec import GIT
from llgbench.errors import EngineError, InputError, UnavailableError

PREFIX = GIT
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
    """Read ``git:PATH@REV``; both PATH and REV may contain ``@``.

    Raises:
        InputError: it has no revision, PATH is not a checkout, or REV is not in it.
        UnavailableError: there is no git.
    """
    splits = list(_splits(spec.removeprefix(PREFIX)))
    if not splits:
        raise InputError(f"{spec!r} does not name a revision of a checkout; write git:PATH@REV")
    # The longest PATH that is a folder: `HEAD@{1}` and `a@b@v1` both come out right.
    path, name = next((s for s in splits if os.path.isdir(os.path.expanduser(s[0]))), splits[0])
    repository = Path(os.path.realpath(os.path.expanduser(path)))
    if not os.path.isdir(repository):
        raise InputError(f"{path} is not a git checkout: there is no such folder")
    try:
        git.ask(repository, "rev-parse", "--git-dir")
    except InputError as error:
        raise InputError(f"{path} is not a git checkout that can be read: {error}") from None
    try:
        commit = git.ask(
            repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )
    except InputError:
        raise InputError(
            f"{path} has no revision {name!r}; fetch it there, or name another"
        ) from None
    return Revision(repository, name, commit.decode().strip())


def _splits(text: str) -> Iterator[tuple[str, str]]:
    """Yield (path, revision) for each ``@``, the last one first."""
    at = len(text)
    while (at := text.rfind("@", 0, at)) > 0:
        if text[at + 1 :]:
            yield text[:at], text[at + 1 :]


def build(revision: Revision, report: Callable[[str], None]) -> Path:
    """Return the library of a revision, built where the cache has none.

    Raises:
        UnavailableError: there is no cargo.
        InputError: the cache cannot be written.
        EngineError: the build fails, the message has cargo's words and where the log is; or the
            library in the cache was altered.
    """
    if (lack := cargo.missing()) is not None:
        raise UnavailableError(f"building {revision.name}: {lack}")
    folder = paths.cache() / "git" / f"{revision.commit[:16]}-{cargo.key(*BUILD)}"
    library = folder / LIBRARY
    if store.is_kept(library):
        return store.check(library)
    what = f"llguidance {revision.name} ({revision.commit[:10]})"
    with cargo.building(what, report) as source:
        if store.is_kept(library):  # another process built it meanwhile
            return store.check(library)
        report(
            f"building {what} by cargo; this runs the build scripts of that revision "
            "(without your environment variables, but not in a sandbox)"
        )
        _extract(revision, source)
        log = folder / "build.log"
        try:
            release = _release(source, log)
            content = cargo.build([*BUILD], source, LIBRARY, log, report)
        except EngineError as error:
            raise EngineError(
                f"{revision.name} of {revision.repository} cannot be built: {error}"
            ) from None
        store.keep(library, content, release)
    return library


@dataclass(frozen=True)
class _Package:
    name: str
    version: str


@dataclass(frozen=True)
class _Metadata:
    """What is read of ``cargo metadata``."""

    packages: list[_Package]


def _release(source: Path, log: Path) -> str:
    text = cargo.run(["metadata", "--no-deps", "--offline", "--format-version=1"], source, log)
    metadata = files.from_json(text, _Metadata, "cargo metadata", error=EngineError)
    for package in metadata.packages:
        if package.name == PACKAGE:
            return package.version
    raise EngineError(f"there is no package {PACKAGE} in that checkout")


def _extract(revision: Revision, into: Path) -> None:
    try:
        archive = git.ask(revision.repository, "archive", "--format=tar", revision.commit)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(into, filter=_as_of_now)
    except (InputError, tarfile.TarError) as error:
        raise EngineError(f"{revision.repository} at {revision.name}: {error}") from None


def _as_of_now(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
    """Extract a member without the commit's time: cargo takes an older file for one it knows."""
    checked = tarfile.data_filter(member, os.fspath(path))
    # typeshed has no None here; tarfile then sets no time.
    return None if checked is None else checked.replace(mtime=None, deep=False)  # type: ignore[arg-type]
