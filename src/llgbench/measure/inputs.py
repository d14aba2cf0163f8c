"""What a configuration's numbers depend on, as hashes; nothing is loaded for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from llgbench import files
from llgbench.engines import registry
from llgbench.errors import LlgbenchError
from llgbench.inputs import case_file, catalogue
from llgbench.inputs.case import Case
from llgbench.inputs.configuration import Configuration
from llgbench.measure import runner
from llgbench.records import record


@dataclass(frozen=True)
class Inputs:
    """The inputs of one configuration.

    Attributes:
        case: the case's digest.
        vocab: sha256 of the GGUF, in hex; None where it is not there.
        engine: sha256 of the library, in hex; None where it is not there.
    """

    case: str
    vocab: str | None
    engine: str | None

    @property
    def digest(self) -> str:
        """A hash of them all."""
        return record.fingerprint(asdict(self))

    def changed(self, before: object) -> str:
        """Return which inputs differ from those that a record holds, in words; "" for none."""
        if not isinstance(before, Mapping):
            return "inputs that are not recorded"
        return " and ".join(name for name, now in asdict(self).items() if before.get(name) != now)


def collect(
    configurations: Iterable[Configuration], cases: Mapping[str, Case] | None = None
) -> dict[Configuration, Inputs]:
    """Return the inputs of each configuration; every file is read once.

    Raises:
        UnknownNameError, CaseError: a case cannot be read.
    """

    @cache
    def of_case(name: str) -> str:
        return ((cases or {}).get(name) or case_file.load(name)).digest

    @cache
    def of_vocab(name: str) -> str | None:
        return of_file(catalogue.vocab_path(name))

    @cache
    def of_file(path: Path) -> str | None:
        return files.sha256(path) if os.path.isfile(path) else None

    @cache
    def of_engine(engine: str, variant: str) -> str | None:
        try:
            name = runner.engine_name(Configuration("", "", variant, engine))
            return of_file(registry.locate(name))
        except LlgbenchError:
            return None  # what is missing is said where it would be measured

    return {
        c: Inputs(of_case(c.case), of_vocab(c.vocab), of_engine(c.engine, c.variant))
        for c in configurations
    }
