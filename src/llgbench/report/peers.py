"""Engines side by side as a table and a picture, from what was found alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from llgbench import files
from llgbench.errors import RecordError
from llgbench.peers.figures import comparison, digits, percentile
from llgbench.peers.results import CaseResult, Found, Samples
from llgbench.report.markdown import table
from llgbench.shown import in_markdown, microseconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]

# Where a results folder has them.
FOLDER, DATA, PICTURE, SECTION = "peers", "peers.json", "peers.png", "peers.md"
TITLE = "Other engines"


def rows(results: Sequence[CaseResult]) -> list[Row]:
    """Return the table: a row per engine and case, times in µs, cold unless named otherwise."""
    several = len({r.vocab for r in results}) > 1
    return [_row(r, several) for r in results]


def _row(r: CaseResult, several: bool) -> Row:
    row: Row = {"case": r.case}
    if several:
        row["vocab"] = r.vocab
    row |= {"engine": r.engine, "white space": r.white_space, "texts": r.outcome}
    row["masks"] = str(r.masks)
    s = r.samples or Samples()
    ratio, n = comparison(r)
    return row | {
        "compile ms": _shown(_median(s.compile_ns), 1e6),
        "first mask": _shown(_median(s.first_mask_ns)),
        "mask p50": _shown(percentile(s.cold_mask_ns, 50)),
        "mask p99": _shown(percentile(s.cold_mask_ns, 99)),
        "accept p50": _shown(percentile(s.cold_accept_ns, 50)),
        "warm p50": _shown(percentile(s.warm_mask_ns, 50)),
        "sibling p50": _shown(percentile(s.sibling_mask_ns, 50)),
        "× llguidance": ratio,
        "of steps": n,
        "tail/head": position(r),
        "MiB": _size(r.memory_bytes, 2**20),
        "KiB a matcher": _size(r.matcher_bytes, 2**10),
    }


def position(r: CaseResult) -> float | None:
    """Return the median mask of texts' last tenths over that of their first; None of short ones."""
    if r.samples is None:
        return None
    head, tail = (percentile(part, 50) for part in (r.samples.head_mask_ns, r.samples.tail_mask_ns))
    return _over(tail, head)


def remarks(results: Sequence[CaseResult]) -> list[str]:
    """Return a line for each result that is not right, and for each mask that differs."""
    lines = []
    for r in results:
        what = f"{r.engine}, {r.case}"
        if r.reason:
            lines.append(f"{what}: {r.outcome}: {r.reason}")
        d = r.masks.first
        if d is not None:
            did = "allows" if d.extra else "forbids"
            other = "forbids" if d.extra else "allows"
            lines.append(
                f"{what}: {did} {d.token!r} after {d.after!r} (step {d.step} of {d.text!r}), which "
                f"the reference {other}; {d.n_extra} tokens more there, {d.n_missing} fewer"
            )
    return lines


def summary(results: Sequence[CaseResult]) -> list[Row]:
    """Return one row per engine and white space: how many cases are right, and pooled times."""
    found: list[Row] = []
    for key in dict.fromkeys((r.engine, r.vocab, r.white_space) for r in results):
        own = [r for r in results if (r.engine, r.vocab, r.white_space) == key]
        right = [r for r in own if r.outcome == "right"]
        compiled = [r.samples for r in right if r.samples is not None]
        pairs = [r.pairs for r in right if r.pairs is not None]
        ours = percentile([ns for p in pairs for ns in p.engine_ns], 50)
        theirs = percentile([ns for p in pairs for ns in p.base_ns], 50)
        head, tail = (
            percentile([ns for s in compiled for ns in getattr(s, part)], 50)
            for part in ("head_mask_ns", "tail_mask_ns")
        )
        found.append({
            "engine": key[0], "vocab": key[1], "white space": key[2],
            "right": f"{len(right)} of {len(own)}",
            "compile ms": _shown(_median([ns for s in compiled for ns in s.compile_ns]), 1e6),
            "mask p50": _shown(percentile([n for s in compiled for n in s.cold_mask_ns], 50)),
            "mask p99": _shown(percentile([n for s in compiled for n in s.cold_mask_ns], 99)),
            "tail/head": _over(tail, head),
            "× llguidance": _over(ours, theirs),
            "vocabulary ms": _shown(float(own[0].vocabulary_ns), 1e6),
        })  # fmt: skip
    return found


def scatter(results: Sequence[CaseResult], path: Path) -> Path | None:
    """Write the picture as a PNG; None where there is nothing to draw.

    Raises:
        RecordError: the file cannot be written.
    """
    from llgbench.report.plots import save

    drawn = figure(results)
    return None if drawn is None else save(drawn, path)


def figure(results: Sequence[CaseResult]) -> Figure | None:
    """Draw compile time against mask time, a mark per case; hollow where it is not right."""
    from matplotlib.ticker import FuncFormatter

    from llgbench.report.plots import COLOURS, MARKERS, new

    drawn = [r for r in results if r.samples and r.samples.compile_ns and r.samples.cold_mask_ns]
    if not drawn:
        return None
    made = new(5.8)
    axes = made.subplots()
    engines = list(dict.fromkeys(r.engine for r in drawn))
    for at, engine in enumerate(engines):
        # Marks that coincide lie within each other.
        style: dict[str, Any] = {
            "color": COLOURS[at % len(COLOURS)],
            "marker": MARKERS[at % len(MARKERS)],
            "markersize": 6 + 1.2 * (len(engines) - 1 - at),
        }
        axes.plot([], [], linestyle="", label=engine.lstrip("_"), **style)  # for the legend alone
        for right in (True, False):
            points = [
                (np.median(r.samples.compile_ns) / 1e6, np.median(r.samples.cold_mask_ns) / 1e3)
                for r in drawn
                if r.engine == engine and sound(r) is right and r.samples
            ]
            axes.plot(
                [x for x, _ in points], [y for _, y in points], linestyle="",
                fillstyle="full" if right else "none", **style,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_xlabel("to compile, ms")
    axes.set_ylabel("a mask, cold, median, µs")
    axes.set_title("Filled: texts and masks right. Hollow: not.")
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    made.legend(loc="outside lower center", ncols=3, frameon=False)
    return made


def sound(r: CaseResult) -> bool:
    """Whether the texts are as recorded, and no mask differs beyond the named classes."""
    return r.outcome == "right" and r.masks.differing == 0


def adapters(found: Found) -> list[Row]:
    """Return what each engine's adapter costs by itself, beside what it may."""
    return [
        {
            "engine": a.engine, "is": a.release, "instructions": _whole(a.instructions),
            "clocked ns": _whole(a.read_ns), "at most": _whole(a.limit_ns),
            "in all ns": _whole(a.wall_ns),
        }
        for a in found.adapters
    ]  # fmt: skip


def latest(results: Path) -> Found | None:
    """Return what ``llgbench peers --output RESULTS/peers`` stored; None where nothing is.

    Raises:
        RecordError: it is damaged, or of another kind.
    """
    path = results / FOLDER / DATA
    return files.read_json(path, Found, error=RecordError) if path.exists() else None


def markdown(found: Found, picture: str | None = None) -> str:
    """Return the section of a report, with a link to the picture where there is one."""
    lines = [f"### {TITLE}", ""]
    machine = found.about.get("machine", {})
    if machine:
        cpu, cores = machine.get("cpu"), machine.get("cores")
        lines += [in_markdown(f"{cpu}, {cores} cores; {found.about.get('rounds')} rounds."), ""]
    for title, rows_ in (
        ("By engine, over its right cases", summary(found.results)),
        ("By case", rows(found.results)),
        ("The adapter by itself", adapters(found)),
    ):
        lines += [f"**{title}**", "", *(table(rows_) or ["Nothing."]), ""]
    if picture is not None:
        lines += [f"![Compile time and mask time of each case]({picture})", ""]
    lines += [f"- {in_markdown(line)}" for line in remarks(found.results)]
    return "\n".join(lines).rstrip() + "\n"


def write(found: Found, folder: Path) -> str:
    """Draw the picture into a folder; return the section that has it.

    Raises:
        RecordError: the picture cannot be written.
    """
    drawn = scatter(found.results, folder / PICTURE)
    return markdown(found, None if drawn is None else PICTURE)


def _over(one: float | None, other: float | None) -> float | None:
    return digits(one / other) if one and other else None


def _size(n: int | None, unit: int) -> float | None:
    return None if n is None else digits(n / unit)


def _whole(value: float) -> int | None:
    return None if math.isnan(value) else round(value)


def _median(samples: Sequence[int]) -> float | None:
    return float(np.median(samples)) if samples else None


def _shown(ns: float | None, unit: float = 1e3) -> float | None:
    return microseconds(None if ns is None else ns * 1e3 / unit)
