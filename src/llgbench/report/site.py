"""Pages of ASV's results: every benchmark over commits, and what has become worse.

Plain HTML with drawings in it: no script, no style sheet and no font comes from elsewhere, so the
pages are the same without a network, and from a folder as from a server.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from llgbench import files, git
from llgbench.asv import alerts, decisions, history, metrics
from llgbench.asv import results as asv_results
from llgbench.asv.alert import Alert
from llgbench.asv.history import Repository
from llgbench.asv.metrics import Metric
from llgbench.asv.series import Point, Series
from llgbench.errors import InputError, LlgbenchError, RecordError
from llgbench.shown import visible

# Pages of single benchmarks lie here, beside index.html; the folder is the site's own.
PAGES = "benchmarks"

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse } td, th { padding: .2rem .8rem .2rem 0; text-align: left }
td.n { text-align: right; font-variant-numeric: tabular-nums } svg { display: block; width: 100% }
h3 { margin: 1.5rem 0 0; font-size: 1rem } .new { color: #b00020; font-weight: 600 }
svg text { font: 13px system-ui, sans-serif; fill: #444 } .line { fill: none; stroke: #0072b2 }
.grid { stroke: #ddd } .error { stroke: #56b4e9 }
circle { fill: #0072b2 } circle.new { fill: #b00020 }
"""

# Larger units, the largest first.
_LARGER = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs")),
    "seconds": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "bytes": ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")),
}
# Noise is not blown up to the height of the picture: it shows at least this much of the value.
_LEAST_RANGE = 0.1
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 900, 170, 90, 15, 12, 28

# A remote's address: with or without a scheme, a user and a port.
_REMOTE = re.compile(
    r"(?:(?:https?|ssh|git)://)?(?:[^@/]+@)?(?P<host>[\w-]+(?:\.[\w-]+)+)(?::\d+(?=/))?[:/]"
    r"(?P<path>[\w.~/-]+?)(?:\.git)?/?"
)


@dataclass(frozen=True)
class _Benchmark:
    name: str
    metric: Metric
    series: Mapping[Series, Sequence[Point]]
    alerts: Sequence[Alert]
    page: str


def write(
    results: Path,
    folder: Path,
    *,
    repository: Repository | None = None,
    commit_url: str | None = None,
    since_tag: str | None = None,
) -> Path:
    """Write the pages of a folder of ASV results.

    Args:
        results: ASV's ``results_dir``, or the folder that has it as ``asv``.
        folder: of the pages; earlier ones there are replaced.
        repository: whose history orders the commits; see :func:`alerts.find`.
        commit_url: what a commit's hash is appended to for a link; of the repository's remote
            ``origin`` unless given.
        since_tag: what commits are compared with; see :func:`alerts.find`.

    Returns:
        The path of index.html.

    Raises:
        InputError: there are no results, or the repository cannot be read.
        RecordError: a file of results cannot be read, or a page cannot be written.
    """
    measured = asv_results.read(results)
    if not measured:
        raise InputError(f"{results}: no results of ASV; run: asv run, or name another folder")
    known = asv_results.benchmarks(results)
    used = repository or history.beside(results)
    order, _ = alerts.order(measured, used)
    every, _ = alerts.collect(results, measured, known, order)
    collected = {
        of: finite
        for of, points in every.items()
        if (finite := [point for point in points if math.isfinite(point.value)])
    }
    if not collected:
        raise InputError(f"{results}: no benchmark has a value; see why: asv run --show-stderr")
    decided = decisions.read(results / alerts.ACCEPTED)
    found = alerts.find(results, decided=decided, repository=repository, since_tag=since_tag)
    link = commit_url if commit_url is not None else _commit_url(used)
    taken: set[str] = set()
    listed = [
        _Benchmark(
            name,
            metrics.of(name, known[name].unit if name in known else ""),
            {of: points for of, points in sorted(collected.items()) if of.benchmark == name},
            [alert for alert in found.alerts if alert.benchmark == name],
            _page(name, taken),
        )
        for name in sorted({of.benchmark for of in collected})
    ]
    pages = {folder / PAGES / one.page: _of_benchmark(one, link) for one in listed}
    with files.folder(folder / PAGES, error=RecordError):
        for path, text in pages.items():
            files.write(path, text, error=RecordError)
        for path in (folder / PAGES).glob("*.html"):
            if path not in pages:
                path.unlink()
    index = folder / "index.html"
    files.write(index, _index(listed, found.notes, link), error=RecordError)
    return index


def _page(name: str, taken: set[str]) -> str:
    """Return the file name of a benchmark's page, one that no other has."""
    base = re.sub(r"[^\w.-]", "_", name).lstrip(".")[:150]
    page = next(
        page
        for number in range(len(taken) + 1)
        if (page := f"{base}{f'-{number}' if number else ''}.html") not in taken
    )
    taken.add(page)
    return page


def _commit_url(repository: Repository | None) -> str:
    """Return the address of commits at a repository's remote; empty where it has none."""
    if repository is None:
        return ""
    try:
        remote = git.ask(repository.path, "remote", "get-url", "origin").decode().strip()
    except (LlgbenchError, UnicodeError):
        return ""
    at = _REMOTE.fullmatch(remote)
    return f"https://{at['host']}/{at['path']}/commit/" if at else ""


# ---- pages ----


def _index(listed: Sequence[_Benchmark], notes: Iterable[str], link: str) -> str:
    points = [p for one in listed for of in one.series.values() for p in of]
    newest = max(points, key=lambda p: p.date_ms)
    rows = []
    for one in listed:
        new = sum(alert.state == "new" for alert in one.alerts)
        rows.append(
            f'<tr><td><a href="{PAGES}/{_text(one.page)}">{_text(one.name)}</a></td>'
            f"<td>{_text(_what(one.metric))}</td><td class=n>{len(one.series)}</td>"
            f"<td class={'new' if new else 'n'}>{new or '–'}</td></tr>"
        )
    found = [_alert(a, link, one) for one in listed for a in one.alerts]
    lasting = [line for line in found if line.startswith("<li class=new>")]
    rest = [line for line in found if line not in lasting]
    body = [
        f"<p>{len({p.commit for p in points})} commits; the newest is {_commit(newest, link)}.</p>",
        "<h2>What became worse</h2>",
        f"<ul>{''.join(lasting)}</ul>" if lasting else "<p>Nothing that is not accepted.</p>",
        *(["<h2>Accepted, mended, better</h2>", f"<ul>{''.join(rest)}</ul>"] if rest else []),
        *(f"<p>Note: {_text(note)}.</p>" for note in dict.fromkeys(notes)),
        "<h2>Benchmarks</h2>",
        "<table><tr><th>benchmark<th>unit<th>series<th>new alerts</tr>",
        *rows,
        "</table>",
    ]
    return _document("Benchmarks over commits", body)


def _of_benchmark(one: _Benchmark, link: str) -> str:
    body = [f'<p><a href="../index.html">All benchmarks</a> · {_text(_what(one.metric))}</p>']
    place = None
    for of, points in one.series.items():
        here = ", ".join(part for part in (of.machine, of.environment, of.branch) if part)
        if here != place:
            body.append(f"<h2>{_text(here)}</h2>")
            place = here
        own = [a for a in one.alerts if (a.parameters, a.place) == (of.parameters, here)]
        body += [f"<h3>{_text(of.parameters or one.name)}</h3>", _drawing(one, points, own, link)]
        if own:
            body.append(f"<ul>{''.join(_alert(alert, link) for alert in own)}</ul>")
    return _document(one.name, body)


def _alert(alert: Alert, link: str, one: _Benchmark | None = None) -> str:
    """Return a line of a list; with its benchmark, a link to that one's page."""
    name = ""
    if one is not None:
        name = f'<a href="{PAGES}/{_text(one.page)}">{_text(alert.name)}</a>, '
        name += f"{_text(alert.place)}: "
    commits = _text(alert.commit_range)
    if link:
        commits = f'<a href="{_text(link + alert.after)}">{commits}</a>'
    new = " class=new" if alert.state == "new" else ""
    return f"<li{new}>{name}{_text(alert.change)}, {commits}, {_text(alert.standing)}</li>"


def _drawing(one: _Benchmark, points: Sequence[Point], own: Sequence[Alert], link: str) -> str:
    """Draw a series by commit, evenly spaced; each point says its commit, and leads there."""
    factor, unit = _scale(one.metric.unit, max(abs(point.value) for point in points))
    values = [point.value / factor for point in points]
    errors = [None if point.error is None else point.error / factor for point in points]
    low, high = _range(values, errors)
    worse = {alert.after for alert in own if alert.state == "new"}

    def x(number: int) -> float:
        share = number / (len(points) - 1) if len(points) > 1 else 0.5
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    drawn = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">']
    for value in (low, (low + high) / 2, high):
        at = y(value)
        drawn.append(
            f'<line class=grid x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_number(value)} '
            f"{_text(unit)}</text>"
        )
    for number, (value, error) in enumerate(zip(values, errors, strict=True)):
        if error:
            drawn.append(
                f'<line class=error x1="{x(number):.1f}" x2="{x(number):.1f}" '
                f'y1="{y(value - error):.1f}" y2="{y(value + error):.1f}"/>'
            )
    path = " ".join(f"{x(number):.1f},{y(value):.1f}" for number, value in enumerate(values))
    drawn.append(f'<polyline class=line points="{path}"/>')
    for number, (point, value) in enumerate(zip(points, values, strict=True)):
        new = " class=new" if point.commit in worse else ""
        said = f"{point.commit[:10]}, {_day(point)}: {_number(value)} {unit}"
        dot = f'<circle{new} cx="{x(number):.1f}" cy="{y(value):.1f}" r="4"><title>{_text(said)}'
        dot += "</title></circle>"
        drawn.append(f'<a href="{_text(link + point.commit)}">{dot}</a>' if link else dot)
    ends = {0: "start", len(points) - 1: "end"} if len(points) > 1 else {0: "middle"}
    for number, anchor in ends.items():
        said = f"{points[number].commit[:10]}, {_day(points[number])}"
        drawn.append(
            f'<text x="{x(number):.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{_text(said)}'
            "</text>"
        )
    return "".join([*drawn, "</svg>"])


def _range(values: Sequence[float], errors: Sequence[float | None]) -> tuple[float, float]:
    """Return the range of the axis: all values with their errors, and not noise alone."""
    pairs = [(value, error or 0.0) for value, error in zip(values, errors, strict=True)]
    low = min(value - error for value, error in pairs)
    high = max(value + error for value, error in pairs)
    missing = max(_LEAST_RANGE * max(abs(low), abs(high)) - (high - low), 0.0)
    if high == low == 0.0:
        missing = 1.0
    return low - missing / 2, high + missing / 2


def _scale(unit: str, largest: float) -> tuple[float, str]:
    """Return by what values are divided so that the largest is short, and the unit then."""
    for factor, larger in _LARGER.get(unit, ()):
        if largest >= factor:
            return factor, larger
    return 1.0, unit


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _what(metric: Metric) -> str:
    return f"{metric.unit}, {metric.better} is better" if metric.unit else metric.better


def _commit(point: Point, link: str) -> str:
    short = _text(point.commit[:10])
    shown = f'<a href="{_text(link + point.commit)}">{short}</a>' if link else short
    return f"{shown} of {_day(point)}"


def _day(point: Point) -> str:
    return f"{datetime.fromtimestamp(point.date_ms / 1000, UTC):%Y-%m-%d}"


def _document(title: str, body: Iterable[str]) -> str:
    lines = [
        "<!doctype html>",
        '<html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{_text(title)}</title>",
        f"<style>{_STYLE}</style>",
        f"<h1>{_text(title)}</h1>",
        *body,
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    """Return text as it stands in HTML; what cannot be printed as escapes."""
    return html.escape(visible(text))
