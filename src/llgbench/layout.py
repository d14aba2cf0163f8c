"""How a table fits a width: which columns stand beside each other, and how wide each is.

Pure: cells come in as they are shown. Columns that have no room stand in a further block, below,
with the same first columns before them, as in pandas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from llgbench.shown import is_right

# Spaces between columns.
GAP = 2

# To what a column of text may be folded.
_NARROW = 24


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: its header.
        cells: one per row.
        right: whether it stands to the right; a number is never folded.
    """

    name: str
    cells: tuple[str, ...]
    right: bool

    @property
    def wide(self) -> int:
        """The width in which nothing is folded."""
        return max(map(cell_len, (self.name, *self.cells)))

    @property
    def narrow(self) -> int:
        """The least width: of numbers, where only the header is folded, between its words."""
        if self.right:
            return max(map(cell_len, (*self.name.split(), *self.cells)))
        return min(self.wide, _NARROW)


def columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Column]:
    """Return the columns of a table."""
    cells = zip(*rows, strict=True) if rows else [()] * len(names)
    return [Column(name, found, is_right(found)) for name, found in zip(names, cells, strict=True)]


def blocks(listed: Sequence[Column], width: int) -> Iterator[list[tuple[Column, int]]]:
    """Yield the blocks of a table: columns with their widths, which fit a width.

    The columns of text that stand first are repeated in every block, as far as they leave room.
    """
    names = list(listed[: _first_number(listed)])
    while names and 2 * _width(names) > width:
        names.pop()
    block: list[Column] = list(names)
    for column in listed[len(names) :]:
        if len(block) > len(names) and _width([*block, column]) > width:
            yield _fitted(block, width)
            block = list(names)
        block.append(column)
    yield _fitted(block, width)


def _first_number(listed: Sequence[Column]) -> int:
    return next((at for at, column in enumerate(listed) if column.right), 1)


def _width(listed: Sequence[Column]) -> int:
    return sum(column.narrow for column in listed) + GAP * (len(listed) - 1)


def _fitted(block: Sequence[Column], width: int) -> list[tuple[Column, int]]:
    """Return columns with widths: the room left over goes to the narrowest folded one, in turn."""
    widths = [column.narrow for column in block]
    room = width - sum(widths) - GAP * (len(block) - 1)
    while room > 0:
        folded = [at for at, column in enumerate(block) if widths[at] < column.wide]
        if not folded:
            break
        widths[min(folded, key=lambda at: (not block[at].right, widths[at]))] += 1
        room -= 1
    return list(zip(block, widths, strict=True))
