"""The section for a pull request: Markdown that fits a comment, and its picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llgbench import files
from llgbench.compare import comparison, inference, sides
from llgbench.compare.comparison import ALL, IDENTICAL, Comparison, Row
from llgbench.compare.inference import Estimate
from llgbench.compare.sides import SIDES
from llgbench.engines.engine import load
from llgbench.errors import RecordError
from llgbench.inputs import case_file
from llgbench.inputs.variant import get
from llgbench.llama import bridge
from llgbench.llama.vocab import open_vocab
from llgbench.measure import provenance, runner
from llgbench.measure.replay import replay
from llgbench.records import stats, times
from llgbench.records.packed import unpack
from llgbench.shown import fence, in_code, in_markdown, markdown_table, number, visible

# GitHub refuses a comment beyond 65,536 characters; the full table is cut before that.
MAX_CHARACTERS = 60_000

WORST = 3

_PERCENTILES = (25.0, 50.0, 75.0, 90.0, 95.0, 99.0)

Times = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Step:
    """One step among the costliest of the head.

    Attributes:
        case: its case.
        vocab: its vocab.
        text: name of the text.
        step: its position.
        base_ns: TBM there, the median over replays.
        head_ns: the same for the head.
        so_far: end of the text before the step.
        allowed: how many tokens the mask allows.
    """

    case: str
    vocab: str
    text: str
    step: int
    base_ns: float
    head_ns: float
    so_far: str = ""
    allowed: int = 0

    @property
    def kind(self) -> str:
        """The kind of mask, by how many tokens it allows."""
        if self.allowed == 1:
            return "forced (1 token)"
        size = "narrow" if self.allowed < 100 else "middling" if self.allowed < 10_000 else "wide"
        return f"{size} ({self.allowed:,} tokens)"


def section(found: Comparison, command: str, picture: str | None = None) -> str:
    """Return the Markdown.

    Args:
        found: the comparison, with its processes in memory.
        command: what reproduces it.
        picture: the picture's address; None leaves it out.
    """
    parts = [
        f"### llgbench: {found.verdict}",
        "",
        f"**{in_markdown(comparison.headline(found))}**",
        "",
        f"old: `{in_code(str(found.base))}`  ",
        f"new: `{in_code(str(found.head))}`",
        "",
    ]
    if (caution := sides.caution(found.base, found.head)) is not None:
        parts += [f"Note: {caution}.", ""]
    if found.ended == IDENTICAL:
        return "\n".join([*parts, "```sh", command, "```", ""])
    if found.differences:
        parts += ["**Masks differ**; no time says anything before they agree:", ""]
        lines = [line for d in found.differences[:3] for line in comparison.difference_lines(d)]
        parts += [f"{fence(lines)}text", *lines, fence(lines), ""]
    else:
        parts += [
            f"Masks: equal at every one of {found.steps:,} steps (hash of each mask).",
            "",
        ]
    if found.counted:
        parts += [*_count_table(found), ""]
    if found.processes:
        parts += [*_field_table(found), ""]
    worst = worst_steps(found)
    if worst:
        parts += ["Costliest steps of the new engine (TBM, median over replays):", ""]
        parts += _markdown(
            ("grammar", "text so far", "mask", "old µs", "new µs"),
            [
                (
                    in_markdown(f"{s.case}, {s.text} step {s.step}"),
                    f"`…{in_code(s.so_far)}`",
                    s.kind,
                    _us(s.base_ns),
                    _us(s.head_ns),
                )
                for s in worst
            ],
        )
        parts.append("")
    parts += [*_counters(found), ""]
    if picture is not None:
        parts += [f"![ratios with their intervals]({picture})", ""]
    parts += [_machine_line(found), "", "```sh", command, "```", ""]
    return "\n".join(parts) + _full_table(found, MAX_CHARACTERS - len("\n".join(parts)))


def _count_table(found: Comparison) -> list[str]:
    """Return the instructions that decide: all cases together, or those of the one case."""
    whole = [r for r in found.rows if r.case == ALL] or found.rows
    rows = [
        (
            row.metric,
            *("" if n is None else f"{n:,.0f}" for n in (row.base, row.head)),
            _change(row.estimate.ratio),
            _interval(row.estimate),
            row.verdict,
        )
        for row in whole
    ]
    return _markdown(("instructions", "old", "new", "change", "95% interval", "verdict"), rows)


def _field_table(found: Comparison) -> list[str]:
    """Return the table in the field's shape: pooled over all cases, old, new, change, interval."""
    random = np.random.default_rng(found.plan.seed)
    values: dict[str, list[tuple[float, float]]] = {}
    for process in found.processes:
        by_side = [_pooled(process, side) for side in SIDES]
        for name in by_side[0]:
            if name in by_side[1]:
                values.setdefault(name, []).append((by_side[0][name], by_side[1][name]))
    rows = []
    for name, pairs in values.items():
        if len(pairs) < max(2, len(found.processes) // 2):
            continue
        old, new = np.median(pairs, axis=0).tolist()
        ratios = [head / base for base, head in pairs]
        e = inference.estimate(ratios, found.plan.threshold, random)
        rows.append((name, _us(old), _us(new), _change(e.ratio), _interval(e)))
    return _markdown(("µs", "old", "new", "change", "95% interval"), rows)


def _pooled(process: Mapping[str, Any], side: str) -> dict[str, float]:
    tbm: list[Times] = []
    parts: dict[str, list[Times]] = {"mask": [], "consume": []}
    medians: list[npt.NDArray[np.float64]] = []
    ttfm: list[Times] = []
    for found in process["cases"].values():
        mask, consume = unpack(found[side]["mask"]), unpack(found[side]["consume"])
        tbm += times.tbms(mask, consume)
        parts["mask"] += mask
        parts["consume"] += consume
        medians += comparison.step_medians(found, side).values()
        ttfm += times.ttfms(unpack(found[side]["compile"]), mask)
    pooled = stats.pool(tbm)
    values: dict[str, float | None] = {"TBM avg": stats.mean(pooled)}
    values |= {f"TBM p{q:g}": stats.percentile(pooled, q) for q in _PERCENTILES}
    values |= comparison.of_steps(np.concatenate([*medians, np.empty(0)]))
    for part, arrays in parts.items():
        of_part = stats.pool(arrays)
        values |= {f"{part} p{q:g}": stats.percentile(of_part, q) for q in (50.0, 99.0)}
    starts = stats.pool(ttfm)
    values |= {"TTFM avg": stats.mean(starts), "TTFM p50": float(np.median(starts))}
    values |= {"tokenizer build": process.get("tokenizer_ns", {}).get(side)}
    return {name: value for name, value in values.items() if value}


def worst_steps(found: Comparison, n: int = WORST) -> list[Step]:
    """Return the steps that cost the head most, the costliest first.

    A step's cost is the median over all its replays of a process, then over processes: what the
    machine does to one replay is no property of the step.
    """
    costs: dict[tuple[str, str, str], list[tuple[Any, Any]]] = {}
    for process in found.processes:
        for name, measured in process["cases"].items():
            base, head = (comparison.step_medians(measured, side) for side in SIDES)
            for text in measured["texts"]:
                costs.setdefault((name, process["vocab"], text), []).append(
                    (base[text], head[text])
                )
    steps = []
    for (name, vocab, text), pairs in costs.items():
        base = np.median(np.stack([pair[0] for pair in pairs]), axis=0)
        head = np.median(np.stack([pair[1] for pair in pairs]), axis=0)
        for at in np.argsort(head)[::-1][:n].tolist():
            steps.append(Step(name, vocab, text, at, float(base[at]), float(head[at])))
    chosen = sorted(steps, key=lambda s: -s.head_ns)[:n]
    return [_explained(step, found) for step in chosen]


def _explained(step: Step, found: Comparison) -> Step:
    """Return the step with the text before it and the size of its mask."""
    loaded = case_file.load(step.case)
    with open_vocab(step.vocab) as vocab:
        at = [text.name for text in loaded.texts].index(step.text)
        trace = np.ascontiguousarray(runner.traces_of(loaded, vocab)[at][: step.step])
        engine = load(found.base.library)
        with (
            bridge.build(engine, vocab, get(found.plan.variant)) as tokenizer,
            tokenizer.matcher(loaded.lark(found.base.options)) as matcher,
        ):
            replay(matcher, trace)
            allowed = matcher.allowed()
        so_far = vocab.spell(trace).decode(errors="replace")[-40:]
    return Step(
        step.case, step.vocab, step.text, step.step, step.base_ns, step.head_ns, so_far,
        0 if allowed is None else len(allowed),
    )  # fmt: skip


def _counters(found: Comparison) -> list[str]:
    if not found.rows or found.rows[0].unit != "instructions":
        return ["Instructions: not counted (`--count`)."]
    lines = [f"Instructions are callgrind's, of {found.counted} processes; they decide."]
    if found.functions:
        rows = [
            (f"`{in_code(f['function'])}`", f"{f['base']:,}", f"{f['head']:,}")
            for f in found.functions
        ]
        lines += ["", "Functions whose instructions changed most (one process):", ""]
        lines += _markdown(("function", "old", "new"), rows)
    moved = [c for c in found.counters if c["base"] != c["head"]]
    if found.counters:
        said = ", ".join(
            f"{c['counter']} of {c['case']} {c['base']:,} → {c['head']:,}" for c in moved[:6]
        )
        lines += ["", f"Work counters: {said or 'equal in every case'}."]
    return lines


def _full_table(found: Comparison, room: int) -> str:
    head = "<details><summary>All {} metrics</summary>\n\n"
    tail = "\n</details>\n"
    rows = [_full_row(row) for row in [*found.rows, *found.clock]]
    if not rows:
        return ""
    lines = _markdown(("case", "metric", "old", "new", "change", "interval", "verdict"), rows)
    kept: list[str] = []
    room -= len(head) + len(tail) + 100
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            kept.append(f"\n{len(lines) - len(kept)} more rows do not fit a comment.")
            break
        kept.append(line)
    return head.format(len(rows)) + "\n".join(kept) + "\n" + tail


def _full_row(row: Row) -> tuple[str, ...]:
    def shown(value: float | None) -> str:
        if value is None:
            return ""
        return _us(value) + " µs" if row.unit == "ns" else f"{value:,.0f} instructions"

    e = row.estimate
    return (
        in_markdown(f"{row.case} on {row.vocab}"), row.metric, shown(row.base), shown(row.head),
        _change(e.ratio), _interval(e), row.verdict,
    )  # fmt: skip


def _machine_line(found: Comparison) -> str:
    machine = provenance.machine()
    return (
        f"{machine['cpu']}, {machine['cores']} cores, governor {machine['governor'] or 'unknown'}, "
        f"{machine['system']}; {_processes(found)} in {found.wall_s:.0f} s, both "
        f"engines in each, replays in alternating order; threshold {found.plan.threshold:.1%}."
    )


def _processes(found: Comparison) -> str:
    timed = f"{len(found.processes)} processes"
    return f"{found.counted} processes counted, {timed} timed" if found.counted else timed


def picture(found: Comparison, path: Path) -> None:
    """Draw every ratio with its interval; what is slower or faster is coloured.

    Raises:
        RecordError: the file cannot be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from llgbench.report import plots

    rows = found.rows[::-1]
    colours = {"slower": "#b2182b", "faster": "#2166ac", "same": "#4d4d4d", "unclear": "#bababa"}
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.19 * len(rows)), layout="constrained")
    low, high = 1 - 5 * found.plan.threshold, 1 + 5 * found.plan.threshold
    for at, row in enumerate(rows):
        e = row.estimate
        low, high = min(low, e.ratio * 0.98), max(high, e.ratio * 1.02)
        axes.plot([e.low, e.high], [at, at], color=colours[row.verdict], linewidth=1.5)
        axes.plot([e.ratio], [at], "o", color=colours[row.verdict], markersize=3.5)
    axes.axvspan(
        1 - found.plan.threshold, 1 + found.plan.threshold, color="#d9d9d9", alpha=0.5, linewidth=0
    )
    axes.axvline(1, color="black", linewidth=0.6)
    axes.set_xlim(low, high)
    axes.set_ylim(-1, len(rows))
    named = [visible(f"{r.case}  {r.metric}") for r in rows]
    axes.set_yticks(range(len(rows)), named, fontsize=6)
    axes.set_xlabel("new / old, with 95% interval; the band is the threshold")
    axes.set_title(found.verdict, fontsize=10)
    for word, colour in colours.items():
        axes.plot([], [], color=colour, label=word)
    axes.legend(fontsize=7, loc="lower right")
    files.write(path, plots.png(figure, 140), error=RecordError)
    plt.close(figure)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return markdown_table(head, rows)


def _us(ns: float) -> str:
    return number(ns / 1000)


def _change(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"


def _interval(e: Estimate) -> str:
    return f"{e.low - 1:+.1%} to {e.high - 1:+.1%}"
