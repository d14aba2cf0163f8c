"""The pages of ASV's results: offline, complete, and safe with any name."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import made_results
import pytest
from made_results import commit, git, write, write_commit, write_history, write_index

from llgbench.asv import history
from llgbench.errors import InputError
from llgbench.report import site

TIME = "masks.Masks.track_tbm_p50"
URL = "https://example.org/owner/name/commit/"
# What a page would load; a link that a reader follows is none.
LOADED = {"src", "srcset", "data", "poster", "background", "integrity"}


class Page(HTMLParser):
    """A page's links, what it loads, its texts by element, and its points."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        text = path.read_text()
        self.loaded += re.findall(r"@import|url\(|https?://[^\"' ]+\.(?:js|css)", text)
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in ("script", "link", "iframe", "img", "object", "embed"):
            self.loaded.append(tag)
        for name, value in attrs:
            if name in LOADED:
                self.loaded.append(f"{name}={value}")
            if tag == "a" and name == "href":
                self.links.append(str(value))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def pages(folder: Path) -> dict[str, Page]:
    return {path.name: Page(path) for path in sorted(folder.rglob("*.html"))}


def test_a_step_is_shown_with_its_alert_and_every_commit_is_linked(tmp_path: Path) -> None:
    values = [15000.0 + number % 2 for number in range(12)] + [18000.0] * 12
    results = write(tmp_path / "results", TIME, "ns", values)
    index = site.write(results, tmp_path / "site", commit_url=URL)
    found = pages(tmp_path / "site")
    assert list(found) == [f"{TIME}.html", "index.html"]
    for page in found.values():
        assert page.loaded == []
    drawn = found[f"{TIME}.html"]
    assert [link for link in drawn.links if link.startswith(URL)] == [
        *(URL + commit(number) for number in range(24)), URL + commit(12),
    ]  # fmt: skip
    assert "15 µs" in drawn.text  # and not 15,000 ns
    for page in found.values():
        assert "+20.0%" in page.text
        assert "ns, less is better" in page.text
    for link in Page(index).links:
        assert link.startswith(URL) or (index.parent / link).is_file()


def test_pages_of_what_is_measured_no_more_go(tmp_path: Path) -> None:
    results = write(tmp_path / "results", "a.A.track_x", "ns", [1.0, 1.0])
    site.write(results, tmp_path / "site")
    write(results, "a.A.track_y", "ns", [1.0, 1.0])
    site.write(results, tmp_path / "site")
    assert list(pages(tmp_path / "site")) == ["a.A.track_y.html", "index.html"]


def test_any_name_stands_in_a_page_and_names_a_file(tmp_path: Path) -> None:
    names = ["<script>x", "../../a", "a/b", "a?b", ".", '"onload="x', "模型", "a_b", "x" * 300]
    results = tmp_path / "results"
    write_commit(results, commit(1), dict.fromkeys(names, 1.0), machine="<b>m")
    write_index(results, dict.fromkeys(names, "<i>"))
    site.write(results, tmp_path / "site", commit_url='https://x/"><script>')
    found = pages(tmp_path / "site")
    assert len(found) == len(names) + 1
    assert {path.parent.name for path in (tmp_path / "site").rglob("*.html")} == {
        "site", "benchmarks",
    }  # fmt: skip
    for page in found.values():
        assert page.loaded == []
        assert not {"script", "b", "i"} & set(page.tags)
    assert {name for name in names if name in found["index.html"].text} == set(names)


@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("https://example.org/o/r", "https://example.org/o/r/commit/"),
        ("https://user:secret@example.org/o/r.git", "https://example.org/o/r/commit/"),
        ("git@example.org:o/r.git", "https://example.org/o/r/commit/"),
        ("ssh://git@example.org:22/o/r.git", "https://example.org/o/r/commit/"),
        ("/srv/r.git", ""),
        ("../r", ""),
        ("file:///srv/r", ""),
    ],
)
def test_links_lead_to_where_the_repository_is_from(tmp_path: Path, remote: str, url: str) -> None:
    repository = tmp_path / "repository"
    (commits,) = write_history(repository, {"main": (None, 2)}).values()
    git(repository, "remote", "add", "origin", remote)
    results = write(tmp_path / "results", TIME, "ns", [1.0, 1.0], commits)
    site.write(results, tmp_path / "site", repository=history.named(repository))
    page = pages(tmp_path / "site")[f"{TIME}.html"]
    assert [link for link in page.links if "commit" in link] == [url + c for c in commits if url]
    assert "secret" not in page.text


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([100.0, 101.0], 95.45, 105.55),  # noise is not the height of the picture
        ([50.0, 100.0], 50.0, 100.0),
        ([0.0, 0.0], -0.5, 0.5),
        ([-2.0, -2.0], -2.1, -1.9),
    ],
)
def test_the_axis_has_all_values_and_is_no_magnifier(
    values: list[float], low: float, high: float
) -> None:
    assert site._range(values, [None] * len(values)) == pytest.approx((low, high))


def test_text_in_a_drawing_is_readable_where_a_page_is_800_wide(tmp_path: Path) -> None:
    made_results.write(tmp_path / "results", "a.B.track_c", "ns", [1.0, 2.0])
    site.write(tmp_path / "results", tmp_path / "html")
    (page,) = (tmp_path / "html" / site.PAGES).glob("*.html")
    (size,) = re.findall(r"svg text \{ font: (\d+)px", page.read_text())
    (width,) = re.findall(r'viewBox="0 0 (\d+) ', page.read_text())
    assert int(size) * 800 / int(width) >= 11


def test_no_results_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    with pytest.raises(InputError, match="no results of ASV"):
        site.write(tmp_path / "results", tmp_path / "site")
    assert not (tmp_path / "site").exists()
