"""The package index that pip is configured with: finding a file there, and bringing it verified.

pip itself runs a source distribution's build scripts before it hands the archive over, whatever
is asked of it. Here nothing of a file is run or unpacked: it is found by the index's own listing
(PEP 503 and 691), written to disk, and refused unless its sha256 is the expected one.
"""

from __future__ import annotations

import base64
import hashlib
import netrc
import os
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPException
from pathlib import Path
from typing import Any

from llgbench import files, pip_settings
from llgbench.errors import FileError, LlgbenchError, PackageIndexError
from llgbench.pip_settings import Settings

_LISTING_LIMIT = 64 << 20
_FILE_LIMIT = 2 << 30
_CHUNK = 1 << 20
_TRIES = 3
_ACCEPT = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.1"
)


@dataclass(frozen=True)
class Link:
    """A file of a project.

    Attributes:
        name: the file's name.
        url: where it is; a path where it lies in a local folder.
        sha256: as the index has it, in hex; None where it has none.
    """

    name: str
    url: str
    sha256: str | None


def links(project: str) -> list[Link]:
    """Return the files of a project, of every index and folder that pip is configured with.

    Raises:
        UnavailableError: no index is known.
        PackageIndexError: an index cannot be read.
    """
    settings = pip_settings.settings()
    found: list[Link] = []
    for place in settings.find_links:
        local = _folder(place)
        found += _listing(place, settings) if local is None else _local(local)
    name = re.sub(r"[-_.]+", "-", project).lower()
    for index in settings.indexes:
        found += _listing(f"{index.rstrip('/')}/{name}/", settings)
    return found


def bring(link: Link, into: Path, sha256: str | None = None) -> Path:
    """Write a file into a folder and return its path, once its content is verified.

    Args:
        link: the file.
        into: the folder.
        sha256: what it must have, in hex; the index's own where None. A file of a local folder
            has none of its own and is then taken as it is.

    Raises:
        PackageIndexError: it cannot be had, or has another sha256; nothing is then left.
    """
    wanted = sha256 or link.sha256
    if wanted is None and _scheme(link.url) != "":
        raise PackageIndexError(f"{_shown(link.url)}: the index has no sha256 for it")
    path = into / link.name
    digest = hashlib.sha256()
    try:
        with _open(link.url, pip_settings.settings()) as source, path.open("xb") as target:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                if target.write(chunk) and target.tell() > _FILE_LIMIT:
                    raise PackageIndexError(f"{link.name} is larger than {_FILE_LIMIT >> 20} MiB")
        if wanted is not None and digest.hexdigest() != wanted:
            raise PackageIndexError(
                f"{link.name} has sha256 {digest.hexdigest()[:12]}…, expected is {wanted[:12]}…; "
                "nothing of it was used"
            )
    except BaseException as error:
        with suppress(OSError):
            path.unlink()
        if isinstance(error, (OSError, HTTPException)) and not isinstance(error, LlgbenchError):
            raise PackageIndexError(f"{_shown(link.url)}: {_why(error)}") from None
        raise
    return path


# ---- listings ----


@dataclass(frozen=True)
class _File:
    filename: str
    url: str
    hashes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Project:
    files: list[dict[str, Any]]


class _Anchors(HTMLParser):
    """Collects the links of a listing in HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See HTMLParser."""
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def _listing(url: str, settings: Settings) -> list[Link]:
    try:
        with _open(url, settings, _ACCEPT) as answer:
            kind = str(answer.headers.get_content_type())
            base = answer.geturl()
            data = answer.read(_LISTING_LIMIT + 1)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return []
        raise PackageIndexError(f"{_shown(url)}: {_why(error)}") from None
    except (OSError, HTTPException) as error:
        if isinstance(error, LlgbenchError):
            raise
        raise PackageIndexError(f"{_shown(url)}: {_why(error)}") from None
    if len(data) > _LISTING_LIMIT:
        raise PackageIndexError(f"{_shown(url)}: the listing is larger than any should be")
    if kind.endswith("json"):
        return list(_from_json(data, base, url))
    return list(_from_html(data.decode(errors="replace"), base))


def _from_json(data: bytes, base: str, shown: str) -> Iterator[Link]:
    project = files.from_json(data, _Project, _shown(shown), error=PackageIndexError)
    for entry in project.files:
        try:
            file = files.convert(entry, _File, _shown(shown))
        except FileError:
            continue  # what pip would pass over as well
        if _is_name(file.filename):
            url = urllib.parse.urljoin(base, file.url)
            yield Link(file.filename, url, file.hashes.get("sha256"))


def _from_html(text: str, base: str) -> Iterator[Link]:
    parser = _Anchors()
    parser.feed(text)
    for href in parser.found:
        url = urllib.parse.urljoin(base, href)
        parts = urllib.parse.urlsplit(url)
        name = urllib.parse.unquote(parts.path).rpartition("/")[2]
        sha256 = urllib.parse.parse_qs(parts.fragment).get("sha256", [None])[0]
        if _is_name(name):
            yield Link(name, urllib.parse.urldefrag(url).url, sha256)


def _folder(place: str) -> Path | None:
    """Return the folder that a place of find-links is; None where it is a listing."""
    path = place
    if place.startswith("file:"):
        path = urllib.request.url2pathname(urllib.parse.urlsplit(place).path)
    path = os.path.expanduser(path)
    return None if _scheme(place) != "" and not os.path.isdir(path) else Path(path)


def _local(folder: Path) -> list[Link]:
    # As pip, which passes over a folder that is not there.
    with suppress(OSError):
        return [Link(p.name, str(p), None) for p in sorted(folder.iterdir()) if p.is_file()]
    return []


def _is_name(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+!-]*", name) is not None


# ---- the network ----


def _open(url: str, settings: Settings, accept: str = "*/*") -> Any:
    """Open a URL, or a path, for reading; try again where the network fails."""
    scheme = _scheme(url)
    if scheme == "":
        return open(url, "rb")
    if scheme not in ("http", "https", "file"):
        raise PackageIndexError(f"{_shown(url)}: not an address of a package index")
    request, host = _request(url, accept)
    handlers: list[Any] = [urllib.request.HTTPSHandler(context=_tls(host, settings))]
    if settings.proxy:
        proxies = {"http": settings.proxy, "https": settings.proxy}
        handlers.append(urllib.request.ProxyHandler(proxies))
    opener = urllib.request.build_opener(*handlers)
    for left in reversed(range(_TRIES)):
        try:
            return opener.open(request, timeout=settings.timeout_s)
        except urllib.error.HTTPError as error:
            error.close()  # what it says besides its status is of no use
            if error.code < 500 or not left:
                raise
        except OSError as error:
            reason = getattr(error, "reason", error)
            if not left or isinstance(reason, (ssl.SSLCertVerificationError, FileNotFoundError)):
                raise
    raise AssertionError("the last try returns or raises")


def _request(url: str, accept: str) -> tuple[urllib.request.Request, str]:
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    user, password = parts.username, parts.password
    if user is None and host:
        with suppress(OSError, netrc.NetrcParseError):
            entry = netrc.netrc().authenticators(host)
            if entry is not None:
                user, _, password = entry
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    request = urllib.request.Request(
        urllib.parse.urlunsplit(bare), headers={"Accept": accept, "User-Agent": "llgbench"}
    )
    if user:
        pair = f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password or '')}"
        token = base64.b64encode(pair.encode()).decode()
        # Unredirected: where the index sends us elsewhere, the password stays.
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request, host


def _tls(host: str, settings: Settings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.cert)
    except OSError as error:
        raise PackageIndexError(f"pip's certificates, {settings.cert}: {error.strerror}") from None
    if host in settings.trusted:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _scheme(url: str) -> str:
    """Return a URL's scheme; nothing for a path."""
    return urllib.parse.urlsplit(url).scheme if "://" in url or url.startswith("file:") else ""


def _shown(url: str) -> str:
    """Return a URL without a password."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _why(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the index answers {error.code} {error.reason}"
    reason = getattr(error, "reason", error)
    if isinstance(reason, OSError) and reason.strerror:
        return str(reason.strerror)
    return files.one_line(reason) or type(error).__name__
