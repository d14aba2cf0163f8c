"""Published releases of llguidance: their wheels' library, brought into the cache."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from llgbench import files, package_index, paths, processes
from llgbench.engines import store
from llgbench.errors import EngineError, InputError
from llgbench.package_index import Link

PACKAGE = "llguidance"

_LIBRARY_LIMIT = 1 << 30


def fetch_release(version: str, report: Callable[[str], None] = lambda _: None) -> Path:
    """Bring a published release's library into the cache; reuse it where it is there.

    The wheel must have the sha256 that the package index has for it.

    Args:
        version: such as ``1.7.6``.
        report: called with one line where the wheel is fetched.

    Raises:
        InputError: the version is not one, or the cache cannot be written.
        UnavailableError: no package index is known.
        PackageIndexError: the index cannot be read.
        EngineError: there is no such release for this machine, or what the cache has was altered.
    """
    try:
        wanted = Version(version)
    except InvalidVersion:
        raise InputError(f"pypi:{version} names no release; a version is like 1.7.6") from None
    target = paths.cache() / "releases" / str(wanted)
    kept = library_in(target)
    if kept is not None and store.is_kept(kept):
        return store.check(kept)
    lock = target.parent / "lock"
    with (
        store.writing(target.parent),
        files.locked(lock, f"fetches {PACKAGE} {wanted}", report, error=InputError),
    ):
        kept = library_in(target)
        if kept is not None and store.is_kept(kept):  # another process fetched it meanwhile
            return store.check(kept)
        link = best(package_index.links(PACKAGE), PACKAGE, wanted)
        report(f"fetching {PACKAGE} {wanted}")
        with processes.temporary_folder() as folder:
            name, content = member(package_index.bring(link, folder), rf"{PACKAGE}/_lib[\w.-]*\.so")
        path = target / name
        store.keep(path, content, str(wanted))
    return path


def library_in(folder: Path) -> Path | None:
    """Return the library of an unpacked wheel's folder, None where there is none."""
    return next(iter(sorted(folder.glob("_lib*.so"))), None)


def best(links: list[Link], package: str, wanted: Version | Callable[[Version], bool]) -> Link:
    """Return the newest wheel of a package that is wanted, and fits this Python and machine best.

    Args:
        links: the package's files.
        package: its name.
        wanted: a release, or what says of one whether it will do.

    Raises:
        EngineError: there is none for this machine.
    """
    order = {tag: at for at, tag in enumerate(sys_tags())}
    fitting: list[tuple[Version, int, Link]] = []
    there: set[Version] = set()
    for link in links:
        try:
            project, version, _, tags = parse_wheel_filename(link.name)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        # Any Python that loads the library will do: it is loaded by its C API alone.
        ranks = [order[tag] for tag in tags if tag in order]
        if project == package and ranks:
            there.add(version)
            if version == wanted if isinstance(wanted, Version) else wanted(version):
                fitting.append((version, -min(ranks), link))
    if fitting:
        return max(fitting, key=lambda triple: triple[:2])[2]
    newest = ", ".join(str(version) for version in sorted(there, reverse=True)[:5])
    known = f"the newest that are there: {newest}" if there else "none is there at all"
    which = f" {wanted}" if isinstance(wanted, Version) else ""
    raise EngineError(f"no wheel of {package}{which} for this machine; {known}")


def member(wheel: Path, pattern: str) -> tuple[str, bytes]:
    """Return the name and the content of a wheel's file whose path matches a pattern.

    Raises:
        EngineError: it has none, or is damaged.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                if re.fullmatch(pattern, info.filename):
                    if info.file_size > _LIBRARY_LIMIT:
                        raise EngineError(f"{wheel.name}: {info.filename} is too large")
                    return Path(info.filename).name, archive.read(info)
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        if isinstance(error, EngineError):
            raise
        raise EngineError(f"{wheel.name}: {error}") from None
    raise EngineError(f"{wheel.name} holds no library of {wheel.name.partition('-')[0]}")
