"""One configuration of a record: its samples, facts and verdict, and its line in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llgbench.errors import RecordError
from llgbench.inputs.configuration import Configuration
from llgbench.records import lines as record_lines
from llgbench.records.packed import MAX_SAMPLE, Arrays, Times, pack, unpack

# Far above any run; what claims to hold more is damaged, or made to exhaust memory.
MAX_VALUES = 1 << 28


@dataclass(frozen=True)
class Entry:
    """One configuration of a record.

    Attributes:
        configuration: what was measured.
        engine: name, release and sha256 of the engine it ran on; empty where unavailable.
        verdict: as Verdict.to_json writes it; empty where unavailable.
        samples: raw times by name, one array per replay, nanoseconds, uint64.
        facts: what does not depend on the clock, by name; where unavailable, the case's alone.
        unavailable: why it was not measured; None where it was.
    """

    configuration: Configuration
    engine: Mapping[str, str] = field(default_factory=dict)
    verdict: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, Arrays] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    unavailable: str | None = None

    @property
    def kind(self) -> str:
        """Of which kind the record is, ``decode``; empty: replays, as ``llgbench run`` stores."""
        return str(self.facts.get("kind", ""))


def to_plain(entry: Entry) -> dict[str, Any]:
    """Return an entry as plain data, as its line holds it."""
    c = entry.configuration
    line: dict[str, Any] = {"configuration": [c.case, c.vocab, c.variant, c.engine]}
    if entry.unavailable is not None:
        line["unavailable"] = entry.unavailable
        if entry.facts:
            line["facts"] = dict(entry.facts)
    else:
        line["engine"] = dict(entry.engine)
        line["verdict"] = dict(entry.verdict)
        line["facts"] = dict(entry.facts)
        line["samples"] = {name: pack(arrays) for name, arrays in entry.samples.items()}
    return line


def from_plain(content: Mapping[str, Any], where: str, room: int = MAX_VALUES) -> Entry:
    """Return the entry that :func:`to_plain` took.

    Args:
        content: plain data, from a foreign file.
        where: the file and its line; begins the message.
        room: the most values that the samples may hold.

    Raises:
        RecordError: it is damaged.
    """
    if "unavailable" in content:
        record_lines.require(content, record_lines.Unavailable, where)
        return Entry(
            Configuration(*content["configuration"]),
            facts=content.get("facts", {}),
            unavailable=content["unavailable"],
        )
    record_lines.require(content, record_lines.Measured, where)
    samples = {}
    for name, packed in content["samples"].items():
        try:
            samples[name] = unpack(packed, min(room, MAX_SAMPLE))
        except ValueError as error:
            raise RecordError(f"{where} is damaged: {error} - at `$.samples.{name}`") from None
        room -= sum(packed["lengths"])
    entry = Entry(
        Configuration(*content["configuration"]),
        engine=content["engine"],
        verdict=content["verdict"],
        facts=content["facts"],
        samples=samples,
    )
    if not entry.kind:
        _require_replays(entry, where)
    return entry


def require_steps(entry: Entry, names: Sequence[str], where: str, *, judged: bool = True) -> None:
    """Refuse a decode's or a batch's entry whose verdict or samples its readers cannot use.

    Args:
        entry: as read from a record, of what was available.
        names: of the samples, all of the same steps by text.
        where: the record and the configuration; begins the message.
        judged: whether it must have a verdict.

    Raises:
        RecordError: the message names the place and what is wrong there.
    """
    if judged and not {"label", "reason"} <= entry.verdict.keys():
        raise RecordError(f"{where} is damaged: the verdict is incomplete")
    steps = [[len(array) for array in entry.samples.get(name, ())] for name in names]
    if any(lengths != steps[0] for lengths in steps):
        raise RecordError(f"{where} is damaged: its samples are not of the same steps")


def _require_replays(entry: Entry, where: str) -> None:
    """Refuse a run's entry whose samples are not of the same replays.

    Raises:
        RecordError: they are not, or the verdict is missing.
    """

    def refuse(what: str) -> None:
        raise RecordError(f"{where} is damaged: {what}")

    for name in ("label", "reason"):
        if name not in entry.verdict:
            refuse(f"the verdict has no {name}")
    samples = entry.samples
    for name in ("compile", "cold_mask", "cold_consume"):
        if name not in samples:
            refuse(f"there are no samples of {name}")
    for kind in ("cold", "warm", "sibling"):
        masks, consumed = samples.get(f"{kind}_mask", []), samples.get(f"{kind}_consume", [])
        # A text that ends by rejection has one mask more.
        if len(masks) != len(consumed) or any(map(_shorter, masks, consumed)):
            refuse(f"the samples of {kind} masks and tokens are not of the same replays")
    if [len(array) for array in samples["compile"]] != [len(samples["cold_mask"])]:
        refuse("not every cold replay has its compilation")


def _shorter(one: Times, other: Times) -> bool:
    return len(one) < len(other)
