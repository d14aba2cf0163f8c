"""A comparison in words: the headline, a difference of masks, what a machine can see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from llgbench.compare import inference
from llgbench.compare.facts import Difference
from llgbench.compare.inference import Estimate, Word
from llgbench.compare.side import SIDES

if TYPE_CHECKING:
    from llgbench.compare.comparison import Comparison, Row


def headline(found: Comparison) -> str:
    """Return the one line for the whole."""
    if found.verdict == "identical":
        return f"identical: {found.ended}"
    if found.differences and not found.rows:
        d = found.differences[0]
        return f"the masks differ, so nothing was timed: first in {d.case}, step {d.step}"
    by = " in instructions" if found.rows and found.rows[0].unit == "instructions" else ""
    n = found.counted or found.processes
    done = f" (threshold {found.plan.threshold:.3g}, {n} processes)"
    if found.differences:
        done += f"; the masks of {len(found.differences)} other cases differ"
    if found.rebuilt:
        return f"{_rebuilt(found, by)}{done}"
    words: tuple[Word, ...] = ("slower", "faster", "same", "unclear")
    count = {word: sum(r.verdict == word for r in found.rows) for word in words}
    parts = [f"{found.verdict}{by}: of {len(found.rows)} metrics "]
    parts.append(", ".join(f"{n} {word}" for word, n in count.items() if n))
    for row in (found.slower or found.faster)[:1]:
        parts.append(
            f"; most: {row.metric} of {row.case} on {row.vocab} {ratio_text(row.estimate)}"
        )
    return "".join(parts) + done


def _rebuilt(found: Comparison, by: str) -> str:
    """Return what stands for a table that compares compilers."""
    ratios = [row.estimate.ratio for row in found.rows]
    return (
        f"another build of llguidance {found.base.release}: the sources are the same, compiler and "
        f"profile differ, and the ratios{by} from {min(ratios):.3f} to {max(ratios):.3f} are theirs"
    )


def ratio_text(e: Estimate) -> str:
    """Return a ratio with its interval, such as ``1.050 [1.041, 1.060]``."""
    return f"{e.ratio:.3f} [{e.low:.3f}, {e.high:.3f}]"


def difference_lines(d: Difference) -> list[str]:
    """Return what a reader needs to see of a difference of masks."""
    lines = [
        f"masks differ: {d.case} on {d.vocab}, text {d.text!r}, step {d.step}, "
        f"after {d.so_far!r}, before {d.next!r}"
    ]
    for side in SIDES:
        some = d.only.of(side)
        shown = ", ".join(f"{token} {piece!r}" for token, piece in some) or "none"
        more = d.n_only.of(side) - len(some)
        lines.append(
            f"  {side}: allows {d.allowed.of(side)} tokens, only here: {shown}"
            f"{f' and {more} more' if more else ''}; replay: {d.end.of(side)}"
        )
    return lines


def no_functions(found: Comparison) -> str | None:
    """Return why a count lists no functions; None where it does, or nothing was counted."""
    if found.functions or not found.counted:
        return None
    if found.named:
        return "no function's instructions changed by a thousandth of the whole"
    return "a library has no names of functions, so what changed cannot be listed by function"


def floor_text(rows: Sequence[Row], threshold: float, rate: float) -> str:
    """Return what an A/A comparison says of this machine, in one line."""
    seen = [inference.smallest_visible(r.estimate, threshold, len(rows), rate) for r in rows]
    spread = [row.estimate.spread for row in rows]
    best = rows[int(np.argmin(seen))]
    return (
        f"noise floor: a process's ratio varies by {np.median(spread):.2%} (median of the rows, "
        f"worst {max(spread):.2%}); half of the rows see a change of {np.median(seen):.1%} "
        f"where nothing else changes, the best ({best.metric} of {best.case}) of {min(seen):.1%}"
    )
