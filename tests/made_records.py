"""Small records whose figures are known by arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llgbench.inputs.configuration import Configuration
from llgbench.records.entry import Entry
from llgbench.records.packed import Arrays
from llgbench.records.record import Record, Writer, read

PROVENANCE: dict[str, Any] = {
    "llgbench": "0.1.0",
    "git": {"commit": "0123456789abcdef", "dirty": True, "changes": "feed"},
    "machine": {
        "cpu": "Some CPU", "cores": 2, "affinity": [0, 1], "governor": None, "system": "Linux",
        "memory_mib": 2048,
    },
    "python": "3.11.7",
    "packages": {"llguidance": "1.9.1"},
    "clock": "tsc",
    "empty_step_read_ns": 30.0,
    "empty_step_wall_ns": 56.0,
}  # fmt: skip

Ns = Sequence[int] | npt.NDArray[np.uint64]


def arrays(*replays: Ns) -> Arrays:
    return [np.asarray(replay, np.uint64) for replay in replays]


def entry(
    variant: str = "baseline",
    *,
    case: str = "json-a",
    vocab: str = "llama-bpe",
    engine: str = "default",
    mask: Sequence[Ns] = ((1000,) * 20,),
    consume: Sequence[Ns] | None = None,
    warm_mask: Sequence[Ns] = (),
    sibling_mask: Sequence[Ns] = (),
    compile_ns: Sequence[int] | None = None,
    label: str = "right",
    reason: str = "",
    tags: Sequence[str] = ("json",),
    value: int | None = None,
    texts: int = 1,
) -> Entry:
    """Return an entry; what is not given is zero, and as long as the masks."""
    compiled = [0] * len(mask) if compile_ns is None else compile_ns
    if consume is None:
        consume = [[0] * len(replay) for replay in mask]
    return Entry(
        Configuration(case, vocab, variant, engine),
        engine={"name": "wheel", "release": "1.9.1", "sha256": "ab" * 32},
        verdict={"label": label, "reason": reason, "texts": []},
        samples={
            "compile": arrays(compiled),
            "first_mask": arrays([replay[0] for replay in mask if len(replay)]),
            "cold_mask": arrays(*mask),
            "cold_consume": arrays(*consume),
            "warm_mask": arrays(*warm_mask),
            "warm_consume": arrays(*([0] * len(replay) for replay in warm_mask)),
            "sibling_mask": arrays(*sibling_mask),
            "sibling_consume": arrays(*([0] * len(replay) for replay in sibling_mask)),
            "cached_mask": [],
        },
        facts={
            "tags": list(tags),
            "value": value,
            "vocab_tokens": 128256,
            "vocab_sha256": "cd" * 32,
            "texts": [{"name": str(n)} for n in range(texts)],
        },
    )


def unavailable(variant: str, reason: str = "no engine", **place: str) -> Entry:
    where = {"case": "json-a", "vocab": "llama-bpe", **place}
    return Entry(
        Configuration(variant=variant, **where), facts={"tags": ["json"]}, unavailable=reason
    )


def record(folder: Path, *entries: Entry, complete: bool = True, mark: str = "mark") -> Record:
    """Write entries into a record and read it back."""
    with Writer(folder, mark, PROVENANCE) as writer:
        for one in entries:
            writer.add(one)
        if complete:
            writer.end()
    return read(writer.path)
