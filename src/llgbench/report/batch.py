"""The report's section on batches: how late the slowest mask of a step is, picture and table.

Made from batch records (decode/batch_recording.py), like every table from what is stored alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from llgbench.decode.batch_summary import FOLDER, Summary, require, summarize, verdict
from llgbench.records import record as records
from llgbench.records.entry import Entry
from llgbench.records.record import Record
from llgbench.report import plots
from llgbench.report.markdown import table
from llgbench.shown import in_markdown, visible

PICTURE = "batch.png"

# Okabe and Ito's colours, as in plots.py, by the number of threads.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
# Letters of a line over the whole width.
_ACROSS = 100
_TITLE = "How late the slowest mask of a batch is"


def latest(results: Path) -> Record | None:
    """Return the newest batch record under a results folder, None where there is none.

    Raises:
        RecordError: it is damaged, or of another kind.
    """
    path = records.latest(results / "records" / FOLDER)
    if path is None:
        return None
    record = records.read(path)
    for entry in record.entries:
        require(entry, str(path))
    return record


def rows(record: Record) -> list[dict[str, Any]]:
    """Return a row per entry; times in microseconds, shares in percent."""
    drafts = any(entry.facts["draft"] for entry in record.entries)
    decoded = any(entry.facts.get("decode") for entry in record.entries)
    return [_row(entry, drafts, decoded) for entry in record.entries]


def _row(entry: Entry, drafts: bool, decoded: bool) -> dict[str, Any]:
    c, facts, s = entry.configuration, entry.facts, summarize(entry)
    row: dict[str, Any] = {"case": c.case, "vocab": c.vocab, "variant": c.variant}
    row |= {"sequences": facts["sequences"], "threads": facts["threads"]}
    row["masks by"] = facts["method"]
    times = {"step p50": "p50", "step p99": "p99", "mask avg": "mask"}
    if drafts:
        times |= {"validate avg": "validate", "drafted avg": "ahead", "rollback avg": "rollback"}
    times |= {"consume avg": "consume", "clone avg": "clone"}
    if decoded:
        times["decode p50"] = "decode"
    for name, of in times.items():
        ns = getattr(s, of) if s is not None else None
        row[f"{name} µs"] = None if ns is None else ns / 1000
    row["busy %"] = None if s is None or s.busy is None else 100 * s.busy
    if decoded:
        row["late %"] = None if s is None or s.late is None else 100 * s.late
    row["verdict"] = verdict(entry)
    return row


def markdown(record: Record, picture: str = PICTURE) -> str:
    """Return the section: what ran, the picture, the table, what its columns mean.

    Args:
        record: a batch record.
        picture: the picture's path as the page should link it; empty: none.
    """
    lines = [f"## {_TITLE}", "", in_markdown(_what_ran(record)), ""]
    if picture:
        lines += [f"![{_TITLE}]({picture})", ""]
    lines += table(rows(record))
    lines += [
        "",
        "*step*: from the start of a step until its slowest mask is there. *mask*: the work for "
        "one sequence, on whichever thread. *consume*: one `consume_token`; a step has one per "
        "sequence, one after another. *clone*: the matcher of a text that begins. *busy*: the "
        "share of the threads' time that was work. *decode*: `llama_decode` of one token per "
        "sequence, timed by itself; *late*: steps that took longer than it. Every mask was "
        "compared with that of one matcher alone.",
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
    """Draw p50 and p99 of a step over the number of sequences; None where there is nothing.

    A panel per case, vocab and variant, a colour per number of threads, a dashed line for
    llguidance's own function.
    """
    timed = [(e, s) for e in record.entries if (s := summarize(e)) is not None and s.p50]
    if not timed:
        return None
    panels = list(dict.fromkeys(_panel(entry) for entry, _ in timed))
    across = 2 if len(panels) > 1 else 1
    down = -(-len(panels) // across)
    figure = plots.new(1.6 + 3.8 * down)
    figure.suptitle("\n".join(wrap(visible(_what_ran(record)), _ACROSS)))
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    axes = list(grid.flat[: len(panels)])
    for ax in grid.flat[len(panels) :]:
        ax.set_visible(False)
    threads = sorted({s.threads for _, s in timed})
    methods = list(dict.fromkeys(s.method for _, s in timed))
    kinds = [(method, n) for method in methods for n in threads]
    for ax, panel in zip(axes, panels, strict=True):
        of_panel = [s for entry, s in timed if _panel(entry) == panel]
        for index, (method, n) in enumerate(kinds):
            line = sorted(
                (s for s in of_panel if (s.method, s.threads) == (method, n)),
                key=lambda s: s.sequences,
            )
            if line:
                # The first is the widest and lowest, with the largest marks, so that lines that
                # coincide show whose they are.
                under = len(kinds) - 1 - index
                style = {
                    "color": _COLOURS[threads.index(n) % len(_COLOURS)],
                    "linestyle": "-" if method == "pool" else "--",
                    "marker": plots.MARKERS[index % len(plots.MARKERS)],
                    "markerfacecolor": "white",
                    "markersize": 4 + 1.5 * min(under, 6),
                    "linewidth": 1.2 + 0.7 * min(under, 4),
                }
                _draw(ax, line, f"{method}, {n} thread{'s' * (n > 1)}", style)
        decoded = sorted({(s.sequences, s.decode / 1000) for s in of_panel if s.decode})
        if decoded:
            ax.plot(*zip(*decoded, strict=True), color="#777777", lw=3, alpha=0.5, label="decode")
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(FuncFormatter(lambda us, _: f"{us:,.0f}"))
        ticks = sorted({s.sequences for s in of_panel})
        ax.set_xticks(ticks, [str(n) for n in ticks])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlabel("sequences")
        case, vocab, variant = panel
        ax.set_title(visible(f"{case} on {vocab}") + "\n" + visible(variant), loc="left")
        ax.grid(axis="y", alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[::across]:
        ax.set_ylabel("slowest mask, µs: p50, and p99 above")
    by_label = dict(
        pair[::-1] for ax in axes for pair in zip(*ax.get_legend_handles_labels(), strict=True)
    )
    figure.legend(
        by_label.values(), by_label.keys(), loc="outside lower center", ncols=2, frameon=False,
        handlelength=4,
    )  # fmt: skip
    return figure


def _draw(ax: Any, line: Sequence[Summary], label: str, style: dict[str, Any]) -> None:
    x = [s.sequences for s in line]
    ax.plot(x, [(s.p50 or 0) / 1000 for s in line], label=label, **style)
    tail = [(s.sequences, s.p99 / 1000) for s in line if s.p99 is not None]
    if tail:
        ax.plot(*zip(*tail, strict=True), **style, alpha=0.6)


def _panel(entry: Entry) -> tuple[str, str, str]:
    c = entry.configuration
    return c.case, c.vocab, c.variant


def _what_ran(record: Record) -> str:
    facts = record.entries[0].facts if record.entries else {}
    if not facts:
        return "Nothing ran."
    words = [f"{facts['steps']} steps"]
    if facts["draft"]:
        words.append(f"drafts of {facts['draft']} tokens")
    words.append(
        "clones of a matcher that has seen no text" if facts["cold"]
        else "clones of a matcher that has seen every text"
    )  # fmt: skip
    decoded = next((d for e in record.entries if (d := e.facts.get("decode"))), None)
    if decoded:
        words.append(
            f"decode: {decoded['model']} on {decoded['device']}, {decoded['threads']} threads"
        )
    else:
        words.append("no decode was timed")
    return "; ".join(words)
