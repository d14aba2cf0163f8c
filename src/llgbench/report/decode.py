"""The report's decode section: where a step's time goes, as a picture and a table.

Made from decode records (decode_recording.py), like every table from what is stored alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from llgbench.decode import summary
from llgbench.decode.modes import MODES
from llgbench.decode.plan import PARTS, UNCONSTRAINED
from llgbench.decode.recording import FOLDER
from llgbench.decode.summary import Summary, summarize, verdict
from llgbench.records import record as records
from llgbench.records.entry import Entry
from llgbench.records.record import Record
from llgbench.records.times import masks_right
from llgbench.report import plots
from llgbench.report.markdown import table
from llgbench.shown import in_markdown, visible

PICTURE = "decode.png"

# What is drawn, in the order of a step; parts that no entry has are left out of the legend.
# Okabe and Ito's colours, as in plots.py; llama.cpp's own work in greys.
_DRAWN = {
    "decode": ("#BBBBBB", "llama.cpp decodes"),
    "candidates": ("#999999", "candidates"),
    "sample": ("#666666", "samples"),
    "mask": ("#0072B2", "mask"),
    "wait": ("#56B4E9", "wait for the mask"),
    "check": ("#CC79A7", "validate"),
    "apply": ("#E69F00", "apply"),
    "accept": ("#009E73", "accept"),
    "forced": ("#D55E00", "forced tokens"),
    "rest": ("#000000", "bookkeeping"),
}


def latest(results: Path) -> Record | None:
    """Return the newest decode record under a results folder, None where there is none.

    Raises:
        RecordError: it is damaged, or of another kind.
    """
    path = records.latest(results / "records" / FOLDER)
    if path is None:
        return None
    record = records.read(path)
    for entry in record.entries:
        summary.require(entry, str(path))
    return record


def rows(record: Record) -> list[dict[str, Any]]:
    """Return a row per entry; times in microseconds, shares in percent."""
    alone = {
        _alone(entry): summary
        for entry in record.entries
        if entry.configuration.variant == UNCONSTRAINED and (summary := summarize(entry))
    }
    return [_row(entry, alone.get(_alone(entry))) for entry in _ordered(record)]


def _row(entry: Entry, alone: Summary | None) -> dict[str, Any]:
    c, summary = entry.configuration, summarize(entry)
    row: dict[str, Any] = {"case": c.case, "vocab": c.vocab, "variant": c.variant}
    row |= {"mode": entry.facts.get("mode", ""), "sequences": None, "steps": None}
    row |= {"tokens": None, "tokens/s": None}
    row |= dict.fromkeys(("of unconstrained %", "step µs", "decode µs", "sample µs"))
    row |= dict.fromkeys(("mask µs", "apply µs", "accept µs", "grammar %", "own %"))
    if summary is not None:
        row["sequences"] = entry.facts["plan"]["sequences"]
        row["steps"], row["tokens"] = summary.steps, summary.tokens
        row["tokens/s"] = summary.per_second
        # A wrong mask gets no ratio, nor does a grammar that was dropped.
        right = masks_right(entry) and entry.facts["lost_at"] is None
        if alone is not None and alone.per_second and right and c.variant != UNCONSTRAINED:
            row["of unconstrained %"] = 100 * summary.per_second / alone.per_second
        row["step µs"] = summary.wall / 1000
        row["decode µs"] = summary.parts["decode"] / 1000
        row["sample µs"] = (summary.parts["candidates"] + summary.parts["sample"]) / 1000
        if c.variant != UNCONSTRAINED:
            seen = sum(summary.parts[name] for name in ("mask", "wait", "check", "forced"))
            row["mask µs"] = seen / 1000
            row["apply µs"] = summary.parts["apply"] / 1000
            row["accept µs"] = summary.parts["accept"] / 1000
            row["grammar %"] = 100 * summary.share
        row["own %"] = 100 * summary.overhead
    row["verdict"] = verdict(entry)
    return row


def markdown(record: Record, picture: str = PICTURE) -> str:
    """Return the section: what ran, the picture, the table, what its columns mean.

    Args:
        record: a decode record.
        picture: the picture's path as the page should link it; empty: none.
    """
    lines = ["## Where the time of a decode step goes", "", in_markdown(_what_ran(record)), ""]
    if picture:
        lines += [f"![Where the time of a decode step goes]({picture})", ""]
    found = rows(record)
    lines += table(found)
    used = [name for name in MODES if any(row["mode"] == name for row in found)]
    lines += [""] + [f"- `{name}`: {MODES[name].summary}." for name in used]
    lines += [
        "",
        "Times are means over the steps of the run that is the median of its rounds. *sample* is "
        "llama.cpp's: the array of candidates and the chain. *mask* is what of it is seen in the "
        "step: with `overlap` the hand-over and the wait, with `forced` and `validate-first` also "
        "those calls. *own* is the loop's bookkeeping, all that is neither llama.cpp's nor "
        "llguidance's. Steps after a grammar was dropped or had ended are not counted.",
        "",
    ]
    return "\n".join(lines)


def write(record: Record, folder: Path) -> str:
    """Draw the picture into a folder; return the section that links it.

    Raises:
        RecordError: the folder cannot be written.
    """
    drawn = picture(record)
    if drawn is None:
        return markdown(record, "")
    plots.save(drawn, folder / PICTURE)
    return markdown(record, PICTURE)


def picture(record: Record) -> Figure | None:
    """Draw a stacked bar an entry, a panel a vocab; None where there is nothing to draw."""
    shown = [(entry, summarize(entry)) for entry in _ordered(record)]
    if all(s is None for _, s in shown):
        return None
    panels = list(dict.fromkeys(_panel(entry) for entry, _ in shown))
    sizes = [sum(_panel(entry) == panel for entry, _ in shown) for panel in panels]
    figure = plots.new(1.2 + 0.34 * sum(sizes) + 0.7 * len(panels))
    figure.suptitle(visible(_what_ran(record)))
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=sizes)[:, 0]
    used = [name for name in _DRAWN if any(s and s.parts[name] > 0 for _, s in shown)]
    for ax, panel in zip(axes, panels, strict=True):
        bars = [(entry, s) for entry, s in shown if _panel(entry) == panel]
        left = [0.0] * len(bars)
        for name in used:
            widths = [max(s.parts[name], 0.0) / 1000 if s else 0.0 for _, s in bars]
            colour, label = _DRAWN[name]
            ax.barh(range(len(bars)), widths, left=left, color=colour, label=label, height=0.75)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        for at, ((entry, s), end) in enumerate(zip(bars, left, strict=True)):
            if entry.configuration.variant != UNCONSTRAINED:
                beside = f"{100 * s.share:.1f}%" if s else _why_no_bar(entry)
                ax.text(end, at, f" {beside}", va="center")
        ax.set_yticks(range(len(bars)), [_bar_label(entry) for entry, _ in bars])
        ax.invert_yaxis()
        ax.set_title(visible(" on ".join(panel)), loc="left")
        ax.margins(x=0.08)
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("mean time of a step, µs; beside it the grammar's share")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def _ordered(record: Record) -> list[Entry]:
    """Return the entries with each group's unconstrained one first and what did not run last."""
    return sorted(
        record.entries,
        key=lambda e: (
            [x.configuration.vocab for x in record.entries].index(e.configuration.vocab),
            [x.configuration.case for x in record.entries].index(e.configuration.case),
            e.unavailable is not None,
            _sequences(e),
            e.configuration.variant != UNCONSTRAINED,
        ),
    )


def _alone(entry: Entry) -> tuple[str, str, int]:
    """Return what an entry shares with the unconstrained run beside it."""
    c = entry.configuration
    return c.case, c.vocab, _sequences(entry)


def _sequences(entry: Entry) -> int:
    return int(entry.facts["plan"]["sequences"]) if entry.unavailable is None else 0


def _panel(entry: Entry) -> tuple[str, str]:
    return entry.configuration.case, entry.configuration.vocab


def _bar_label(entry: Entry) -> str:
    facts, name = entry.facts, entry.configuration.variant
    if entry.unavailable is not None:
        return name
    parts = [name] if name == UNCONSTRAINED else [name, facts["mode"]]
    if facts["plan"]["sequences"] > 1:
        parts.append(f"×{facts['plan']['sequences']}")
    if facts["lost_at"] is not None:
        parts.append("(dropped)")
    elif entry.verdict.get("label") == "wrong":
        parts.append("(wrong)")
    return " ".join(parts)


def _why_no_bar(entry: Entry) -> str:
    if entry.unavailable is not None:
        return "not available"
    return f"no step with a grammar: dropped at step {entry.facts['lost_at']}"


def _what_ran(record: Record) -> str:
    measured = [entry for entry in record.entries if entry.unavailable is None]
    if not measured:
        return "Nothing ran."
    facts = measured[0].facts
    model, device = facts["model"], facts["model"]["device"]
    threads = f"{facts['threads']} thread{'s' if facts['threads'] > 1 else ''}"
    kind = "random weights" if model["synthetic"] else model["description"]
    return f"Model: {model['label']} ({kind}) on {device.get('name', device['kind'])}, {threads}"


assert set(_DRAWN) == {*PARTS, "rest"}
