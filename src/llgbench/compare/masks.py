"""Masks of two engines step by step, in instructions: the facts, and what they come to.

Reading them loads neither an engine nor llama.cpp.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llgbench import files
from llgbench.errors import RecordError
from llgbench.shown import plural

SCHEMA = 1
_FORMAT = "llgbench masks"

# A step is changed beyond this.
NOISE = 0.005

# A text is slower beyond this, all its masks together: what one step leaves another may pay.
SLOWER = 0.005

MASKBENCH = "MaskBench"


@dataclass(frozen=True)
class TextMasks:
    """One text, replayed once by both engines under the same hash seeds, on fresh matchers.

    Attributes:
        vocab: its name.
        group: what its row of the table is: the case, or MASKBENCH.
        case: the case, or the MaskBench file.
        text: name of the text.
        base: instructions of the mask of each step, the mean over seeds.
        head: the same.
    """

    vocab: str
    group: str
    case: str
    text: str
    base: tuple[int, ...]
    head: tuple[int, ...]

    @property
    def ratio(self) -> float:
        """All masks of the text, head over base."""
        return sum(self.head) / sum(self.base)

    @property
    def worst_so_far(self) -> float:
        """The largest ratio of all masks from the first to any step.

        What an engine saves at one step it may have to pay at a later one: a state of the lexer
        that it did not build before. So a single step says less than all up to it.
        """
        found: npt.NDArray[np.float64] = np.cumsum(self.head) / np.cumsum(self.base)
        return float(found.max())

    @property
    def ratios(self) -> npt.NDArray[np.float64]:
        """Head over base at each step, shape (steps,)."""
        found: npt.NDArray[np.float64] = np.array(self.head, float) / np.array(self.base, float)
        return found


@dataclass(frozen=True)
class Refused:
    """A case or file that is not counted.

    Attributes:
        vocab: its name.
        group: as in TextMasks.
        case: the case, or the MaskBench file.
        why: in one line.
    """

    vocab: str
    group: str
    case: str
    why: str


@dataclass(frozen=True)
class Masks:
    """What was counted, and what was not.

    Attributes:
        base: one engine, as it names itself.
        head: the other.
        variant: the bridge of both.
        seeds: how many processes counted each text, each with hash seeds of its own.
        verified: masks that were compared bit by bit, of all texts, counted or not.
        texts: what was counted; of each case and file the longest accepted text.
        differences: places where masks differ, one line each.
        refused: cases and files that are not counted.
        unavailable: what could not be counted at all, such as a vocabulary, and why.
        provenance: machine, commit and packages.
    """

    base: str
    head: str
    variant: str
    seeds: int
    verified: int = 0
    texts: tuple[TextMasks, ...] = ()
    differences: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()
    unavailable: dict[str, str] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def slower(self) -> list[TextMasks]:
        """Texts whose masks cost the head more in all, the worst first."""
        found = [text for text in self.texts if text.ratio > 1 + SLOWER]
        return sorted(found, key=lambda text: -text.ratio)

    @property
    def failed(self) -> bool:
        """Whether a text is slower or masks differ."""
        return bool(self.slower or self.differences)


def rows(found: Masks) -> list[dict[str, Any]]:
    """Return a row for each vocabulary and group of texts, in the order they were counted."""
    groups = dict.fromkeys((text.vocab, text.group) for text in found.texts)
    return [
        _row(vocab, group, [t for t in found.texts if (t.vocab, t.group) == (vocab, group)])
        for vocab, group in groups
    ]


def _row(vocab: str, group: str, texts: Sequence[TextMasks]) -> dict[str, Any]:
    base, head = (sum(sum(getattr(t, side)) for t in texts) for side in ("base", "head"))
    ratios = np.concatenate([text.ratios for text in texts])
    return {
        "vocab": vocab,
        "texts": group if group != MASKBENCH else f"{group}, {len(texts)} files",
        "steps": len(ratios),
        "changed": f"{np.mean(abs(ratios - 1) > NOISE):.1%}",
        "all masks": _ratio(head / base),
        "median step": _ratio(float(np.median(ratios))),
        "best step": _ratio(float(ratios.min())),
        "worst step": _ratio(float(ratios.max())),
        "worst text": _ratio(max(text.ratio for text in texts)),
        "worst so far": _ratio(max(text.worst_so_far for text in texts)),
    }


def notes(found: Masks) -> list[str]:
    """Return what a reader of the table must know, a line each."""
    lines = [
        f"{found.base} → {found.head}; bridge {found.variant}. Instructions of the masks alone, "
        f"cold, {plural(found.seeds, 'seeds')}; of each case and file the longest accepted text. "
        f"A step is changed where its ratio differs from 1 by more than {NOISE:.1%}; worst so far "
        "is the largest ratio of all masks from a text's first to any of its steps."
    ]
    if found.differences:
        lines += [*found.differences]
    else:
        lines.append(f"All {found.verified:,} masks of all texts are equal, bit by bit.")
    if found.texts:
        worst = max(found.texts, key=lambda text: text.ratios.max())
        at = int(worst.ratios.argmax())
        lines.append(
            f"The worst step is step {at} of {worst.case} on {worst.vocab}, "
            f"{worst.base[at]:,} → {worst.head[at]:,} instructions; all masks of that text: "
            f"{_ratio(worst.ratio)}."
        )
    lines += [
        f"Slower: {text.case} on {text.vocab}, {_ratio(text.ratio)}." for text in found.slower
    ]
    lines += [f"Not counted: {vocab}: {why}" for vocab, why in found.unavailable.items()]
    groups = Counter((r.vocab, r.group) for r in found.refused)
    for (vocab, group), n in groups.items():
        reasons = [r.why for r in found.refused if (r.vocab, r.group) == (vocab, group)]
        if group != MASKBENCH:
            lines.append(f"Not counted: {group} on {vocab}: {reasons[0]}")
            continue
        counted = sum((t.vocab, t.group) == (vocab, group) for t in found.texts)
        lines.append(
            f"Not counted: {n} of {n + counted} {group} files on {vocab}, such as "
            f"{next(r.case for r in found.refused if r.group == group)}: {reasons[0]}"
        )
    return lines


def _ratio(value: float) -> str:
    return f"{value:.3f}"


def write(found: Masks, path: Path) -> None:
    """Keep what was counted in a file.

    Raises:
        RecordError: it cannot be written.
    """
    text = json.dumps({"format": _FORMAT, "schema": SCHEMA, **asdict(found)})
    # A text per line: a change of one is a change of one line.
    files.write(path, text.replace('{"vocab"', '\n{"vocab"') + "\n", error=RecordError)


def read(path: Path) -> Masks:
    """Read what :func:`write` kept.

    Raises:
        RecordError: it is not that, of another version, or damaged.
    """
    content = files.read_loose_json(path, dict[str, Any], error=RecordError)
    if content.get("format") != _FORMAT or content.get("schema") != SCHEMA:
        raise RecordError(f"{path} is not a file of llgbench masks, schema {SCHEMA}")
    found = files.convert(content, Masks, str(path), error=RecordError)
    for text in found.texts:
        counts = (*text.base, *text.head)
        if not counts or len(text.base) != len(text.head) or min(counts) <= 0:
            raise RecordError(f"{path} is damaged: the counts of {text.case} are not pairs")
    return found
