"""An alert, as it is shown and kept: what became worse, by how much, between which commits."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

# What a decision refers to: source, machine, environment, branch, benchmark, parameters.
Subject = tuple[str, str, str, str, str, str]

# ``new`` is open and not accepted, ``closed`` is good again, ``better`` a fact that improved.
State = Literal["new", "accepted", "closed", "better"]


class Rise(msgspec.Struct, frozen=True, kw_only=True):
    """What became worse, in which series, between which commits; alerts and decisions are of one.

    Attributes:
        source: ``asv`` or ``records``.
        machine: where it was measured.
        environment: ASV's name for it; empty of records.
        branch: of the commits; empty of records, and where no repository tells.
        benchmark: its name; of records, the metric.
        parameters: of the benchmark, as one line.
        before: the last commit (or record) that was good.
        after: the first at the level that was reached.
        old: the value before, in ``unit``; of records, at the speed the machine had after.
        new: the value reached.
        unit: as the benchmark gives it.
    """

    source: str
    machine: str
    environment: str
    branch: str
    benchmark: str
    parameters: str
    before: str
    after: str
    old: float
    new: float
    unit: str

    @property
    def subject(self) -> Subject:
        """The series that a decision refers to."""
        return (
            self.source, self.machine, self.environment, self.branch, self.benchmark,
            self.parameters,
        )  # fmt: skip


class Alert(Rise, frozen=True, kw_only=True):
    """A stretch of a series that is worse than its best; or a fact that has become better.

    Attributes:
        state: whether it is open, and decided on.
        since: day of the first commit that was worse, ISO; of records, the newer one's name.
        until: the commit that was good again; empty while it lasts.
        commits: how many were measured since the first that was worse, up to ``until``.
        reason: why it is accepted; empty where it is not.
    """

    state: State = "new"
    since: str = ""
    until: str = ""
    commits: int = 1
    reason: str = ""

    @property
    def rise(self) -> dict[str, Any]:
        """What a decision has of it: the fields of :class:`Rise`."""
        return {name: getattr(self, name) for name in Rise.__struct_fields__}

    @property
    def name(self) -> str:
        """The benchmark with its parameters."""
        return f"{self.benchmark} ({self.parameters})" if self.parameters else self.benchmark

    @property
    def place(self) -> str:
        """Where it was measured."""
        return ", ".join(part for part in (self.machine, self.environment, self.branch) if part)

    @property
    def commit_range(self) -> str:
        """The commits between which it became what it is, as git takes them."""
        length = 10 if self.source == "asv" else None
        return f"{self.before[:length]}..{self.after[:length]}"

    @property
    def change(self) -> str:
        """The total change, in percent; the values alone where a percentage would say nothing."""
        values = f"{_number(self.old)} → {_number(self.new)} {self.unit}".rstrip()
        return f"{self.new / self.old - 1:+.1%}, {values}" if self.old > 0 < self.new else values

    @property
    def standing(self) -> str:
        """Whether it lasts, and since when."""
        commits = f"{self.commits} commit{'' if self.commits == 1 else 's'}"
        match self.state:
            case "closed":
                return f"closed by {self.until[:10]}, after {commits} since {self.since}"
            case "better":
                return f"better since {self.since}"
            case "accepted":
                return f"accepted ({self.reason}), since {self.since}"
        return f"open since {self.since}" + (f", {commits}" if self.source == "asv" else "")

    def __str__(self) -> str:
        return f"{self.name} on {self.place}: {self.change}, {self.commit_range}, {self.standing}"

    def to_json(self) -> dict[str, Any]:
        """Return the alert as plain data."""
        return msgspec.structs.asdict(self)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() or abs(value) >= 1000 else f"{value:.4g}"
