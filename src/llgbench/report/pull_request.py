"""The section for a pull request: Markdown that fits a comment, from a stored comparison alone.

A reviewer sees the answer, masks and times, what changed, and the costliest steps; all else is
folded.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from llgbench.compare import side, words
from llgbench.compare.comparison import ALL, DEFAULT_CASES, Comparison, Pooled, Row
from llgbench.compare.facts import Step, WorkCounter
from llgbench.compare.inference import Estimate
from llgbench.shown import fence, in_code, in_markdown, markdown_table, number

# GitHub refuses a comment beyond 65,536 characters; the full table is cut before that.
MAX_CHARACTERS = 60_000

# What is seen at once, of the pooled table.
VISIBLE = ("TBM p50", "TBM p99", "mask p50", "mask p99", "consume p50", "consume p99", "TTFM p50")

# So many lines of what changed are seen; the full table has them all.
_CHANGED = 6


def section(found: Comparison, picture: str | None = None) -> str:
    """Return the Markdown.

    Args:
        found: the comparison.
        picture: name of the file to attach; a comment names it, since a relative address would be
            broken in a pull request.
    """
    parts = [
        f"### llgbench: {found.verdict}",
        "",
        f"**{in_markdown(words.headline(found))}**",
        "",
        f"old: `{in_code(str(found.base))}`  ",
        f"new: `{in_code(str(found.head))}`",
        "",
    ]
    if found.verdict == "identical":
        return "\n".join([*parts, *_fenced([command(found)], "sh"), ""])
    warning = side.caution(found.base, found.head)
    if warning is not None and not found.rebuilt:
        parts += [f"Note: {warning}.", ""]
    parts += [*_masks(found), ""]
    folded = [*_times(found), ""]
    if found.rebuilt:
        parts += _folded("Times of the two builds", folded)
    else:
        parts += [*folded, *_changed(found)]
    parts += _costliest(found)
    parts += _work(found)
    if picture is not None and found.rows:
        parts += [f"<!-- attach {picture}: the ratios with their intervals -->", ""]
    parts += _pooled(found)
    parts += _folded("How it was measured", _how(found))
    text = "\n".join(parts)
    return text + _full_table(found, MAX_CHARACTERS - len(text))


def command(found: Comparison) -> str:
    """Return the command that measures this again."""
    plan = found.plan
    name = ["compare", "--self"] if found.self_test else ["pr"]
    specs = [found.base.spec] if found.self_test else [found.base.spec, found.head.spec]
    line = ["llgbench", *name, *specs]
    line += [w for c in plan.cases if plan.cases != DEFAULT_CASES for w in ("--case", c)]
    line += [w for v in plan.vocabs if plan.vocabs != ("llama-bpe",) for w in ("--vocab", v)]
    if plan.white_space not in ("", "spaced"):
        line += ["--white-space", plan.white_space]
    if plan.variant != "greedy_tokenize":
        line += ["--variant", plan.variant]
    if plan.threshold != (0.005 if found.counted else 0.02):
        line += ["--threshold", f"{plan.threshold:g}"]
    if plan.budget_s != 300:
        line += ["--budget", f"{plan.budget_s:g}"]
    line += ["--where-equal"] * plan.unequal + ["--count"] * bool(found.counted)
    return shlex.join(line)


def _masks(found: Comparison) -> list[str]:
    if found.common:
        return [
            "Masks of different engines; a ratio is formed only of steps at which they are equal "
            "or differ by a named class:",
            "",
            *_fenced([words.common_line(c) for c in found.common], "text"),
        ]
    if not found.differences:
        return [f"Masks: equal at every one of {found.steps:,} steps (hash of each mask)."]
    lines = [line for d in found.differences[:3] for line in words.difference_lines(d)]
    return [
        "**Masks differ**; no time says anything before they agree:",
        "",
        *_fenced(lines, "text"),
    ]


def _times(found: Comparison) -> list[str]:
    """Return the table that is seen: instructions where they decide, else the pooled times."""
    if found.counted:
        whole = [r for r in found.rows if r.case == ALL] or found.rows
        numbers = any(r.base is not None for r in whole)
        rows = [
            (
                r.metric + _on(found, r.vocab),
                *(["" if n is None else f"{n:,.0f}" for n in (r.base, r.head)] if numbers else []),
                *_ratio(r.estimate),
                r.verdict,
            )
            for r in whole
        ]
        head = ["instructions", *(("old", "new") if numbers else ())]
        return markdown_table((*head, "change", "95% interval", "verdict"), rows)
    seen = [row for row in found.pooled if row.metric in VISIBLE]
    if seen:
        return _pooled_table(found, seen)
    if found.rows:
        return ["No pooled times are stored (an earlier llgbench wrote this); see the full table."]
    return []


def _changed(found: Comparison) -> list[str]:
    """Return what is slower or faster: all cases together first, then the worst cases."""
    rows = sorted([*found.slower, *found.faster], key=lambda row: row.case != ALL)
    if not rows:
        return []
    shown = [_full_row(row) for row in rows[:_CHANGED]]
    more = len(rows) - len(shown)
    tail = [f"and {more} more, in the full table below."] if more else []
    return [*markdown_table(_FULL_HEAD, shown), "", *tail, *([""] if tail else [])]


def _costliest(found: Comparison) -> list[str]:
    steps = found.costliest
    if not steps:
        if found.rows and found.schema < 2:
            return ["The costliest steps are not stored (an earlier llgbench wrote this).", ""]
        return []
    unit = "instructions" if steps[0].unit == "instructions" else "µs"
    rows = [
        (
            in_markdown(f"{s.case}, {s.text} step {s.step}") + _on(found, s.vocab),
            f"`…{in_code(s.so_far)}`" if s.allowed is not None else "not explained",
            f"`{in_code(s.token)}`" if s.token else "end",
            _grammar(s),
            *(f"{n:,.0f}" if unit == "instructions" else _us(n) for n in (s.base, s.head)),
        )
        for s in steps
    ]
    head = ("step", "text so far", "token", "the grammar allows", f"old {unit}", f"new {unit}")
    return ["Costliest steps of the new engine (TBM, median):", "", *markdown_table(head, rows), ""]


def _grammar(step: Step) -> str:
    """Return what the grammar allows at a step: how many tokens, and what they begin with."""
    if step.allowed is None:
        return ""
    begins = f", beginning with `{in_code(step.expects)}`" if step.expects else ""
    return f"{step.kind}{begins}{', or the end' if step.accepting else ''}"


def _work(found: Comparison) -> list[str]:
    """Return what does not depend on the clock: work counters and functions that changed."""
    lines: list[str] = []
    moved = sorted(
        (c for c in found.counters if c.base != c.head), key=lambda c: -abs(_share(c))
    )  # fmt: skip
    if moved:
        rows = [
            (
                in_markdown(c.case) + _on(found, c.vocab), c.counter, f"{c.base:,}", f"{c.head:,}",
                f"{_share(c):+.1%}" if c.base else "",
            )
            for c in moved[:_CHANGED]
        ]  # fmt: skip
        lines += ["Work counters that changed:", ""]
        lines += [*markdown_table(("case", "counter", "old", "new", "change"), rows), ""]
    elif found.counters:
        lines += ["Work counters: equal in every case.", ""]
    if found.functions:
        cells = [
            (f"`{in_code(f.function)}`", f"{f.base:,}", f"{f.head:,}", f"{f.head - f.base:+,}")
            for f in found.functions
        ]
        lines += ["Functions whose instructions changed most (one process):", ""]
        lines += [*markdown_table(("function", "old", "new", "change"), cells), ""]
    elif (why := words.no_functions(found)) is not None:
        lines += [f"Functions: {why}.", ""]
    return lines


def _share(c: WorkCounter) -> float:
    return (c.head - c.base) / c.base if c.base else float("inf")


def _pooled(found: Comparison) -> list[str]:
    if not found.pooled:
        return []
    return _folded("All percentiles, all cases pooled", _pooled_table(found, found.pooled))


def _pooled_table(found: Comparison, rows: Iterable[Pooled]) -> list[str]:
    cells = [
        (row.metric + _on(found, row.vocab), _us(row.base), _us(row.head), *_ratio(row.estimate))
        for row in rows
    ]
    return markdown_table(("µs", "old", "new", "change", "95% interval"), cells)


def _how(found: Comparison) -> list[str]:
    timed = f"{found.processes} processes timed"
    done = f"{found.counted} processes counted, {timed}" if found.counted else timed
    by = "instructions are callgrind's, and they decide" if found.counted else "by the clock"
    machine = str(found.machine) if found.machine else "the machine is not stored"
    return [
        in_markdown(machine)
        + f"; {done}, in {found.wall_s:.0f} s ({found.ended}); {by}; both engines in each process, "
        f"replays in alternating order; variant {in_markdown(found.plan.variant)}, "
        + (f"white space {found.plan.white_space}, " if found.plan.white_space else "")
        + "threshold "
        f"{found.plan.threshold:.1%}.",
        "",
        *_fenced([command(found)], "sh"),
    ]


_FULL_HEAD = ("case", "metric", "old", "new", "change", "95% interval", "verdict")


def _full_table(found: Comparison, room: int) -> str:
    rows = [_full_row(row) for row in [*found.rows, *found.clock]]
    if not rows:
        return ""
    head = f"<details><summary>All {len(rows)} metrics</summary>\n\n"
    tail = "\n\n</details>\n"
    room -= len(head) + len(tail) + 100
    lines = markdown_table(_FULL_HEAD, rows)
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            kept.append(f"\n{len(lines) - len(kept)} more rows do not fit a comment.")
            break
        kept.append(line)
    return head + "\n".join(kept) + tail


def _full_row(row: Row) -> tuple[str, ...]:
    def shown(value: float | None) -> str:
        if value is None:
            return ""
        return _us(value) + " µs" if row.unit == "ns" else f"{value:,.0f} instructions"

    return (
        in_markdown(f"{row.case} on {row.vocab}"), row.metric, shown(row.base), shown(row.head),
        *_ratio(row.estimate), row.verdict,
    )  # fmt: skip


def _on(found: Comparison, vocab: str) -> str:
    """Return the vocab where there are several."""
    return in_markdown(f" on {vocab}") if vocab and len(found.plan.vocabs) > 1 else ""


def _folded(title: str, lines: Sequence[str]) -> list[str]:
    return [f"<details><summary>{title}</summary>", "", *lines, "", "</details>", ""]


def _fenced(lines: list[str], language: str) -> list[str]:
    mark = fence(lines)
    return [f"{mark}{language}", *lines, mark]


def _us(ns: float) -> str:
    return number(ns / 1000)


def _ratio(e: Estimate) -> tuple[str, str]:
    return _change(e.ratio), f"{_change(e.low)} to {_change(e.high)}"


def _change(ratio: float) -> str:
    return f"{ratio - 1:+.1%}".replace("-0.0%", "+0.0%")
