"""Runs configurations into a record: what ``llgbench run`` and the ASV suite have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from llgbench import paths, provenance, records, runner
from llgbench.case import Case
from llgbench.configuration import Configuration
from llgbench.errors import InputError
from llgbench.records import Record
from llgbench.replay import Rounds
from llgbench.runner import Tally

QUICK = Rounds(cold=2, warm=4, cached=1)
FULL = Rounds(cold=5, warm=20, cached=2)


@dataclass(frozen=True)
class Recorded:
    """A run that has come to its end.

    Attributes:
        record: all configurations, those of an earlier, killed run of the same kind included.
        tally: where the time of this run went.
    """

    record: Record
    tally: Tally


def record(
    configurations: Sequence[Configuration],
    rounds: Rounds,
    *,
    cases: Mapping[str, Case] | None = None,
    results: Path | None = None,
    strict: bool = False,
    command: str = "",
    resumed: Callable[[Path, int], None] = lambda _path, _done: None,
    doing: Callable[[str], None] = lambda _: None,
    done: Callable[[], None] = lambda: None,
) -> Recorded:
    """Measure configurations and store each as it is done, under results/records.

    Args:
        configurations: what to measure; those that a killed run of the same fingerprint stored
            already are not measured again.
        rounds: how often each is replayed.
        cases: cases that are not under grammars/, by name.
        results: default: the checkout's results/.
        strict: raise where a grammar does not compile.
        command: what anyone would run to measure this again; kept in the record.
        resumed: called with the record's path and how much it holds already.
        doing: called with a line before each group of configurations.
        done: called after each stored configuration.

    Raises:
        RecordError: the folder cannot be written.
        InputError: interrupted; the message says where what was measured is kept.
        UnknownNameError, GrammarError: as runner.run.
    """
    root = paths.root()
    where_from = provenance.collect(root)
    mark = records.fingerprint(
        provenance.identity(where_from),
        [str(c) for c in configurations],
        asdict(rounds),
        sorted(c.digest for c in (cases or {}).values()),
    )
    tally = Tally()
    folder = (results or root / "results") / "records"
    header = {**where_from, "rounds": asdict(rounds), "command": command}
    with records.Writer(folder, mark, header) as writer:
        if writer.done:
            resumed(writer.path, len(writer.done))
        todo = [c for c in configurations if c not in writer.done]
        try:
            for entry in runner.run(todo, rounds, tally, cases, doing, strict=strict):
                writer.add(entry)
                done()
        except KeyboardInterrupt:
            raise InputError(
                f"interrupted; what was measured is kept in {writer.path}, "
                "and the same command goes on from there"
            ) from None
        writer.end()
    return Recorded(records.read(writer.path), tally)
