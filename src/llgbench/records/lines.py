"""What the lines of a record must hold to be read; one line of text goes in, plain data comes out.

Only what a reader relies on is asked for. What else a line holds is left as it is, so that records
of other versions can be read.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec

from llgbench import files
from llgbench.errors import RecordError

# Whole numbers that a float holds exactly; whatever is counted here is smaller.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]


class Git(TypedDict, total=False):
    """Of the checkout; see provenance.git_state."""

    commit: str | None
    dirty: bool | None
    changes: str | None


class Machine(TypedDict, total=False):
    """Of provenance.machine."""

    cpu: str | None
    cores: Count | None
    affinity: list[Count]
    governor: str | None
    system: str | None
    memory_mib: Count | None


class Provenance(TypedDict, total=False):
    """Of provenance.collect, and what the run adds."""

    llgbench: str | None
    git: Git
    machine: Machine
    python: str | None
    packages: dict[str, str | None]
    clock: str | None
    empty_step_read_ns: float
    empty_step_wall_ns: float
    rounds: dict[str, Any]
    command: str | None


class Header(TypedDict):
    """The first line."""

    format: str
    schema: int
    provenance: Provenance
    created: NotRequired[str]
    fingerprint: NotRequired[str]


class Named(TypedDict):
    """A text, by its name."""

    name: str


class Facts(TypedDict, total=False):
    """Of any entry; a kind of record has more, which its readers ask for."""

    kind: str
    case_digest: str
    tags: list[str]
    value: Whole | None
    vocab_sha256: str
    vocab_tokens: Count
    texts: list[Named]


class Verdict(TypedDict, total=False):
    """Of checks.Verdict.to_json; empty where nothing was to be judged."""

    label: str
    reason: str


class Packed(TypedDict):
    """Of records.pack."""

    lengths: list[Count]
    data: str


# In the tables an empty name stands for the pool of all.
_Name = Annotated[str, msgspec.Meta(min_length=1)]
_Configuration = Annotated[list[_Name], msgspec.Meta(min_length=3, max_length=4)]


class Measured(TypedDict):
    """A line of a configuration that was measured."""

    configuration: _Configuration
    engine: dict[str, str]
    verdict: Verdict
    facts: Facts
    samples: dict[str, Packed]


class Unavailable(TypedDict):
    """A line of one that was not."""

    configuration: _Configuration
    unavailable: str
    facts: NotRequired[Facts]


class End(TypedDict):
    """The last line; old ones do not count the lines before it."""

    end: str
    lines: NotRequired[Count]


def parse(text: str, where: str) -> dict[str, Any]:
    """Return the JSON object of a line.

    Args:
        text: the line.
        where: the file and the line's number; begins the message.

    Raises:
        RecordError: it is not an object, or has a number that is not finite.
    """
    try:
        content = json.loads(text, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else files.one_line(error)
        raise RecordError(f"{where}: not JSON ({why}); the record is damaged") from None
    if not isinstance(content, dict):
        raise RecordError(f"{where}: not a JSON object; the record is damaged")
    return content


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def require(content: Any, kind: Any, where: str) -> None:
    """Refuse content that is not of a type; ``kind`` is one of the above.

    Raises:
        RecordError: the message names the place in the content and what was expected.
    """
    files.convert(content, kind, f"{where} is damaged", error=RecordError)
