"""Runs configurations into a record: what ``llgbench run`` and the ASV suite have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from llgbench import paths
from llgbench.errors import InputError
from llgbench.inputs.case import Case
from llgbench.inputs.configuration import Configuration
from llgbench.isolated import Limits
from llgbench.measure import inputs, provenance, supervisor
from llgbench.measure.inputs import Inputs
from llgbench.measure.journal import Journal
from llgbench.measure.rounds import Rounds
from llgbench.measure.runner import Tally
from llgbench.records import record as records
from llgbench.records.record import Record

QUICK = Rounds(cold=2, warm=4, cached=1, sibling=2)
# Of a grammar of one's own, whose texts may be short; ``seconds`` is the user's.
OWN = Rounds(cold=2, warm=4, cached=2, sibling=2)
FULL = Rounds(cold=5, warm=20, cached=2, sibling=5)


@dataclass(frozen=True)
class Recorded:
    """A run that has come to its end.

    Attributes:
        record: all configurations, those of an earlier, killed run of the same kind included.
        tally: where the time of this run went.
    """

    record: Record
    tally: Tally

    @property
    def nothing(self) -> str | None:
        """Why nothing at all could be measured, the first reason; None where something was.

        There is no record then.
        """
        entries = self.record.entries
        if not entries or not all(entry.unavailable for entry in entries):
            return None
        return f"{entries[0].configuration}: {entries[0].unavailable}"


def record(
    configurations: Sequence[Configuration],
    rounds: Rounds,
    *,
    cases: Mapping[str, Case] | None = None,
    results: Path | None = None,
    limits: Limits | None = None,
    retry: bool = False,
    command: str = "",
    resumed: Callable[[Path, int], None] = lambda _path, _done: None,
    again: Callable[[Configuration, str], None] = lambda _configuration, _why: None,
    doing: Callable[[str], None] = lambda _: None,
    done: Callable[[], None] = lambda: None,
) -> Recorded:
    """Measure configurations and store each as it is done, under results/records.

    A run that was killed is continued: what it has stored of the same inputs is not measured again.

    Args:
        configurations: what to measure.
        rounds: how often each is replayed.
        cases: cases that are not under grammars/, by name.
        results: default: the checkout's results/.
        limits: of each worker; default: see supervisor.run.
        retry: measure again what a killed run found to be not available.
        command: what anyone would run to measure this again; kept in the record.
        resumed: called with the record's path and how much it holds already.
        again: called with each configuration that is measured again, and why.
        doing: called with a line before each group of configurations.
        done: called after each stored configuration.

    Raises:
        RecordError: the folder cannot be written.
        InputError: interrupted; the message says where what was measured is kept.
        UnknownNameError, CaseError: a case cannot be read.
    """
    root = paths.root()
    limits = limits or Limits.default(supervisor.STEP_S)
    where_from = provenance.collect(root)
    known = inputs.collect(configurations, cases)
    mark = records.fingerprint(
        provenance.identity(where_from), [str(c) for c in configurations], asdict(rounds)
    )
    tally = Tally()
    folder = (results or root / "results") / "records"
    header = {
        **where_from, "rounds": asdict(rounds), "limits": asdict(limits), "command": command
    }  # fmt: skip
    with records.Writer(folder, mark, header) as writer:
        stored = _still_valid(writer, known, retry, again)
        if stored:
            resumed(writer.path, len(stored))
        try:
            for entry in supervisor.run(
                [c for c in configurations if c not in stored], rounds, tally, cases, doing,
                limits=limits, journal=Journal(writer.path.with_suffix(".journal")),
                inputs={c: of.digest for c, of in known.items()},
            ):  # fmt: skip
                facts = {**entry.facts, "inputs": asdict(known[entry.configuration])}
                writer.add(replace(entry, facts=facts))
                done()
        except KeyboardInterrupt:
            if writer.empty:
                raise
            raise InputError(
                f"interrupted; what was measured is kept in {writer.path}, "
                "and the same command continues from there"
            ) from None
        writer.end()
        found = Recorded(records.read(writer.path), tally)
        if found.nothing is not None:
            writer.discard()
    return found


def _still_valid(
    writer: records.Writer, known: Mapping[Configuration, Inputs], retry: bool,
    again: Callable[[Configuration, str], None],
) -> set[Configuration]:  # fmt: skip
    """Return the configurations of a killed run that need not be measured again."""
    valid: set[Configuration] = set()
    for entry in writer.entries:
        configuration = entry.configuration
        changed = known[configuration].changed(entry.facts.get("inputs"))
        if changed:
            again(configuration, f"another {changed}")
        elif retry and entry.unavailable is not None:
            again(configuration, f"it was not available: {entry.unavailable}")
        else:
            valid.add(configuration)
    return valid
