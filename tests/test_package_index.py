"""The package index, served on this machine: listings, settings, and files that are not right."""

from __future__ import annotations

import hashlib
import http.server
import json
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.tags import sys_tags

from llgbench import package_index, pip_settings
from llgbench.engines import store, wheels
from llgbench.errors import EngineError, PackageIndexError, UnavailableError

CONTENT = b"what is in the file"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
JSON = "application/vnd.pypi.simple.v1+json"


class Index:
    """A package index: what it answers by path, and what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, str, bytes]] = {}
        self.asked: list[tuple[str, str | None]] = []
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.asked.append((self.path, self.headers.get("Authorization")))
                status, kind, data = index.answers.get(self.path, (404, "text/plain", b"no"))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                return

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def listing(self, project: str, *entries: object) -> None:
        data = json.dumps({"meta": {"api-version": "1.0"}, "files": list(entries)}).encode()
        self.answers[f"/simple/{project}/"] = (200, JSON, data)

    def file(self, name: str, content: bytes = CONTENT) -> str:
        self.answers[f"/files/{name}"] = (200, "application/octet-stream", content)
        return f"../../files/{name}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    found = Index()
    for name in ("EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX", "CERT", "PROXY"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://{found.address}/simple")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("LLGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(package_index, "_TRIES", 1)
    pip_settings.settings.cache_clear()
    yield found
    found.close()
    pip_settings.settings.cache_clear()


def test_a_listing_in_json(index: Index, tmp_path: Path) -> None:
    index.listing(
        "some-project",
        {"filename": "a-1.tar.gz", "url": index.file("a-1.tar.gz"), "hashes": {"sha256": SHA256}},
        {"filename": "../../evil", "url": "x", "hashes": {}},  # these are passed over
        {"filename": 5},
        {"filename": "b-1.tar.gz", "url": index.file("b-1.tar.gz"), "hashes": {}, "more": None},
    )
    a, b = package_index.links("Some_.Project")
    assert (a.name, a.sha256, b.sha256) == ("a-1.tar.gz", SHA256, None)
    assert package_index.bring(a, tmp_path).read_bytes() == CONTENT
    with pytest.raises(PackageIndexError, match="the index has no sha256 for it"):
        package_index.bring(b, tmp_path)
    assert package_index.bring(b, tmp_path, SHA256).read_bytes() == CONTENT


def test_a_listing_in_html(index: Index, tmp_path: Path) -> None:
    url = index.file("a-1%2Bx.tar.gz")
    text = f'<a name="x">x</a><a data-x href="{url}#sha256={SHA256}">a</a><a href="../">up</a>'
    index.answers["/simple/a/"] = (200, "text/html", text.encode())
    (link,) = package_index.links("a")
    assert (link.name, link.sha256) == ("a-1+x.tar.gz", SHA256)
    assert package_index.bring(link, tmp_path).read_bytes() == CONTENT


def test_a_file_that_is_not_the_one_listed_is_not_left(index: Index, tmp_path: Path) -> None:
    url = index.file("a-1.tar.gz", CONTENT + b"!")
    index.listing("a", {"filename": "a-1.tar.gz", "url": url, "hashes": {"sha256": SHA256}})
    (link,) = package_index.links("a")
    with pytest.raises(
        PackageIndexError, match=r"a-1\.tar\.gz has sha256 .*nothing of it was used"
    ):
        package_index.bring(link, tmp_path)
    # The recorded one decides, also where the index agrees with itself.
    with pytest.raises(PackageIndexError, match="expected is 000000000000"):
        package_index.bring(link, tmp_path, "0" * 64)
    assert not list(tmp_path.glob("*.tar.gz"))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((500, "text/plain", b""), "the index answers 500"),
        ((200, JSON, b"{"), "truncated"),
        ((200, JSON, b"[]"), "Expected `object`"),
        ((200, JSON, b'{"files": 5}'), "Expected `array`"),
    ],
)
def test_an_index_that_does_not_answer_well(
    index: Index, answer: tuple[int, str, bytes], why: str
) -> None:
    index.answers["/simple/a/"] = answer
    with pytest.raises(PackageIndexError, match=why) as caught:
        package_index.links("a")
    assert "\n" not in str(caught.value)
    assert index.address in str(caught.value)


def test_an_index_that_is_not_there(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(PackageIndexError, match=r"127\.0\.0\.1:9/simple/a/: Connection refused"):
        package_index.links("a")


def test_a_project_that_is_not_there(index: Index) -> None:
    assert package_index.links("nothing") == []


def test_a_password_reaches_the_index_and_no_message(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:secret@{index.address}/simple")
    index.answers["/simple/a/"] = (500, "text/plain", b"")
    with pytest.raises(PackageIndexError) as caught:
        package_index.links("a")
    assert "secret" not in str(caught.value)
    assert index.asked[0][1] == "Basic bWU6c2VjcmV0"


def test_pips_own_configuration_is_read(
    index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index.listing("a", {"filename": "a-1.tar.gz", "url": "x", "hashes": {}})
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "a-2.tar.gz").write_bytes(CONTENT)
    (tmp_path / "pip.conf").write_text(
        f"[global]\nindex-url = http://{index.address}/simple/\n"
        f"[download]\nfind-links =\n    /no/such/folder\n    {tmp_path / 'links'}\n"
    )
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert [link.name for link in package_index.links("a")] == ["a-2.tar.gz", "a-1.tar.gz"]
    local = package_index.links("a")[0]
    (tmp_path / "into").mkdir()
    assert package_index.bring(local, tmp_path / "into", SHA256).read_bytes() == CONTENT
    pip_settings.settings.cache_clear()
    folder = tmp_path / "links"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{folder.as_uri()} {folder} /no/such/folder ~nobody/x")
    assert [link.name for link in package_index.links("a")] == ["a-2.tar.gz"] * 2
    pip_settings.settings.cache_clear()
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert [link.name for link in package_index.links("a")] == ["a-2.tar.gz"]


def test_without_pip_it_says_what_to_do(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """As uv makes environments."""
    monkeypatch.setitem(sys.modules, "pip", None)
    index.listing("a", {"filename": "a-1.tar.gz", "url": "x", "hashes": {}})
    assert len(package_index.links("a")) == 1  # an index that is named needs no pip
    pip_settings.settings.cache_clear()
    monkeypatch.delenv("PIP_INDEX_URL")
    with pytest.raises(UnavailableError, match=r"no pip.*ensurepip.*uv pip install pip.*INDEX_URL"):
        package_index.links("a")


# ---- releases ----


def wheel_of(folder: Path, version: str, members: dict[str, bytes]) -> bytes:
    path = folder / "made.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path.read_bytes()


def offer(index: Index, version: str, content: bytes, sha256: str | None = None) -> None:
    name = f"llguidance-{version}-{next(iter(sys_tags()))}.whl"
    hashes = {"sha256": sha256 or hashlib.sha256(content).hexdigest()}
    index.listing(
        "llguidance", {"filename": name, "url": index.file(name, content), "hashes": hashes}
    )


def test_a_release_is_brought_and_kept(index: Index, tmp_path: Path) -> None:
    offer(index, "1.2.3", wheel_of(tmp_path, "1.2.3", {"llguidance/_lib.abi3.so": b"a library"}))
    lines: list[str] = []
    path = wheels.fetch_release("1.2.3", lines.append)
    assert path.read_bytes() == b"a library"
    assert store.release_of(path) == "1.2.3"
    assert lines == ["fetching llguidance 1.2.3"]
    asked = len(index.asked)
    assert wheels.fetch_release("1.2.3", lines.append) == path
    assert len(index.asked) == asked
    path.write_bytes(b"another")
    with pytest.raises(EngineError, match="was altered since it was kept"):
        wheels.fetch_release("1.2.3")


def test_a_wheel_that_is_not_the_one_listed_is_refused(index: Index, tmp_path: Path) -> None:
    wheel = wheel_of(tmp_path, "1.2.3", {"llguidance/_lib.abi3.so": b"a library"})
    offer(index, "1.2.3", wheel, "0" * 64)
    with pytest.raises(PackageIndexError, match="nothing of it was used"):
        wheels.fetch_release("1.2.3")
    assert not list(tmp_path.glob("cache/releases/*/*"))


@pytest.mark.parametrize(
    "members", [{}, {"llguidance/lib.so": b""}, {"../llguidance/_lib.so": b""}, {"_lib.so": b""}]
)
def test_a_wheel_without_a_library(index: Index, tmp_path: Path, members: dict[str, bytes]) -> None:
    offer(index, "1.2.3", wheel_of(tmp_path, "1.2.3", members))
    with pytest.raises(EngineError, match="holds no library"):
        wheels.fetch_release("1.2.3")


def test_a_wheel_that_is_none(index: Index) -> None:
    offer(index, "1.2.3", b"no zip at all")
    with pytest.raises(EngineError, match="not a zip file"):
        wheels.fetch_release("1.2.3")


def test_the_releases_that_are_there_are_named(index: Index) -> None:
    with pytest.raises(EngineError, match=r"no wheel of llguidance 1\.2\.4 .*none is there at all"):
        wheels.fetch_release("1.2.4")
    offer(index, "1.2.3", b"")
    with pytest.raises(EngineError, match=r"no wheel of llguidance 1\.2\.4 .*are there: 1\.2\.3"):
        wheels.fetch_release("1.2.4")
