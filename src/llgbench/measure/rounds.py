"""Rounds of replays, cold, warm, by a sibling and cached, of configurations interleaved."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from llgbench.engines.engine import Matcher, TokenArray, Tokenizer
from llgbench.measure.replay import End, Op, Replay, Times, replay
from llgbench.records import stats


@dataclass(frozen=True)
class Rounds:
    """How often each kind of replay is repeated, over the whole measurement.

    Attributes:
        cold: rounds; each has one cold replay of every text.
        warm: replays after a reset; rounds have equal shares of it, as of the following.
        cached: replays in which each mask is asked for again.
        sibling: replays of a clone.
        seconds: beyond these rounds there are more until the cold masks carry a p99, for at most
            so many seconds per subject; 0: no more.
    """

    cold: int = 3
    warm: int = 10
    cached: int = 1
    sibling: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what would measure nothing."""
        if self.cold < 1 or self.warm < 0 or self.cached < 0 or self.sibling < 0:
            raise ValueError("at least one cold round is needed, the others cannot be negative")
        if self.sibling > self.cold:  # a second clone of one matcher may know what the first built
            raise ValueError("a cold round has one replay of a sibling at most")

    def go_on(self, number: int, masks: int, elapsed_s: float) -> bool:
        """Return whether there is a round of a number, from 0.

        Args:
            number: of the round.
            masks: how many cold masks the subject with the fewest has by now.
            elapsed_s: since the first round, per subject.
        """
        more = 0 < masks < stats.needed(99.0) and elapsed_s < self.seconds
        return number < self.cold or more


@dataclass
class Samples:
    """Raw times of one configuration, in nanoseconds; nothing is averaged.

    Every list has one array per replay, in the order they ran; steps of different texts follow
    each other within a round's arrays.

    Attributes:
        compile_ns: time inside llg_new_matcher, one per cold replay.
        first_mask_ns: the first mask of each cold replay.
        cold_mask_ns: masks of the first replay of a fresh matcher.
        cold_consume_ns: consume_token in the same.
        warm_mask_ns: masks of later replays after a reset.
        warm_consume_ns: consume_token in the same.
        cached_mask_ns: masks asked for again at the same state.
        sibling_mask_ns: masks of the first replay of a clone, taken of the matcher that has
            replayed the text before, and been reset; none where there is one text. The text after
            the last is the first, so a round's arrays are of the second text to the first.
        sibling_consume_ns: consume_token in the same.
        allowed: tokens each mask of the first cold replays allows, one array per text.
        mask_hash: a hash of each of these masks, one array per text.
        inside_ns: all time inside llguidance, calls that are not sampled included.
        fault: how one replay of a trace was not as another; what it timed is left out. Empty where
            none was.
    """

    compile_ns: list[int] = field(default_factory=list)
    first_mask_ns: list[int] = field(default_factory=list)
    cold_mask_ns: list[Times] = field(default_factory=list)
    cold_consume_ns: list[Times] = field(default_factory=list)
    warm_mask_ns: list[Times] = field(default_factory=list)
    warm_consume_ns: list[Times] = field(default_factory=list)
    cached_mask_ns: list[Times] = field(default_factory=list)
    sibling_mask_ns: list[Times] = field(default_factory=list)
    sibling_consume_ns: list[Times] = field(default_factory=list)
    allowed: list[Times] = field(default_factory=list)
    mask_hash: list[Times] = field(default_factory=list)
    inside_ns: int = 0
    fault: str = ""

    def add(self, other: Samples) -> None:
        """Append what another measurement of the same subject found."""
        for part in fields(self):
            mine, more = getattr(self, part.name), getattr(other, part.name)
            setattr(self, part.name, mine or more if part.name == "fault" else mine + more)


@dataclass(frozen=True)
class Subject:
    """One variant's side of a measurement: where its grammar is compiled, and the grammar."""

    tokenizer: Tokenizer
    grammar: str


@dataclass(frozen=True, order=True)
class Unit:
    """What is measured in one piece: one text in one round, by every subject in turn."""

    round: int
    text: int


def measure(
    subjects: Mapping[str, Subject], traces: Sequence[TokenArray], rounds: Rounds
) -> dict[str, Samples]:
    """Replay every trace under every subject; see :func:`units`, whose pieces it puts together.

    Raises:
        GrammarError: a grammar does not compile.
    """
    samples = {name: Samples() for name in subjects}
    for _, part in units(subjects, traces, rounds):
        for name, of_subject in part.items():
            samples[name].add(of_subject)
    return samples


def units(
    subjects: Mapping[str, Subject],
    traces: Sequence[TokenArray],
    rounds: Rounds,
    skip: Container[Unit] = (),
    doing: Callable[[str, int], None] = lambda _name, _text: None,
) -> Iterator[tuple[Unit, dict[str, Samples]]]:
    """Replay every trace under every subject, interleaved; yield each unit as it is done.

    Within a round the subjects take turns, and every other round in the opposite order, so that
    what slows the machine for a while slows them alike. A text that a subject rejects contributes
    the steps up to there.

    Args:
        subjects: by any name; the results have the same names.
        traces: token ids, each shape (n,), uint32, the end token included where wanted.
        rounds: how often.
        skip: units that are not measured.
        doing: called with a subject's name and a text's index before the engine is asked to do
            something for them.

    Raises:
        GrammarError: a grammar does not compile.
    """
    known: dict[tuple[str, int], _Course] = {}
    masks = dict.fromkeys(subjects, 0)
    started = time.monotonic()
    for number in itertools.count():
        elapsed_s = (time.monotonic() - started) / max(len(subjects), 1)
        if not rounds.go_on(number, min(masks.values(), default=0), elapsed_s):
            return
        order = list(subjects) if number % 2 == 0 else list(subjects)[::-1]
        for at in range(len(traces)):
            unit = Unit(number, at)
            if unit in skip:
                masks = {name: n + len(traces[at]) for name, n in masks.items()}
            else:
                piece = _Piece(subjects, order, traces, known, doing)
                piece.measure(
                    at,
                    warm=_share(rounds.warm, rounds.cold, number),
                    cached=_share(rounds.cached, rounds.cold, number),
                    sibling=_share(rounds.sibling, rounds.cold, number),
                    facts=number == 0,
                )
                for name, samples in piece.samples.items():
                    masks[name] += sum(map(len, samples.cold_mask_ns))
                yield unit, piece.samples


def _share(total: int, parts: int, number: int) -> int:
    """Return the size of one of ``parts`` nearly equal shares of ``total``."""
    return total // parts + (number < total % parts)


# How a replay went, whatever it timed: every replay of a trace on one engine goes alike.
_Course = tuple[End, int]


class _Piece:
    """One unit while it is measured."""

    def __init__(
        self, subjects: Mapping[str, Subject], order: Sequence[str], traces: Sequence[TokenArray],
        known: dict[tuple[str, int], _Course], doing: Callable[[str, int], None],
    ) -> None:  # fmt: skip
        """Begin; ``known`` keeps how the replays of each subject and trace go."""
        self.samples = {name: Samples() for name in subjects}
        self._subjects, self._order, self._traces = subjects, order, traces
        self._known, self._doing = known, doing

    def measure(self, at: int, warm: int, cached: int, sibling: int, *, facts: bool) -> None:
        """Replay a text on fresh matchers, then on the same again, and the next on clones."""
        matchers: dict[str, Matcher] = {}
        try:
            for name in self._order:
                self._doing(name, at)
                subject = self._subjects[name]
                matchers[name] = subject.tokenizer.matcher(subject.grammar)
                self._cold(name, matchers[name], at, facts)
            for number in range(warm):
                for name in self._order if number % 2 else reversed(self._order):
                    done = self._again(name, matchers[name], at)
                    if done is not None:
                        self.samples[name].warm_mask_ns.append(done.op_ns)
                        self.samples[name].warm_consume_ns.append(done.consume_ns)
            for _ in range(cached):
                for name in self._order:
                    done = self._again(name, matchers[name], at, Op.CACHED)
                    if done is not None:
                        self.samples[name].cached_mask_ns.append(done.op_ns)
            for _ in range(sibling if len(self._traces) > 1 else 0):
                for name in self._order:
                    self._sibling(name, matchers[name], (at + 1) % len(self._traces))
        finally:
            for matcher in matchers.values():
                matcher.close()

    def _cold(self, name: str, matcher: Matcher, at: int, facts: bool) -> None:
        into = self.samples[name]
        done = replay(matcher, self._traces[at], facts=facts)
        if facts:
            into.allowed.append(done.steps["allowed"].astype(np.uint64))
            into.mask_hash.append(done.steps["mask_hash"].copy())
        into.inside_ns += matcher.compile_ns + done.inside_ns
        into.compile_ns.append(matcher.compile_ns)
        if len(done.op_ns):
            into.first_mask_ns.append(int(done.op_ns[0]))
        into.cold_mask_ns.append(done.op_ns)
        into.cold_consume_ns.append(done.consume_ns)
        self._alike(name, at, done, "a fresh matcher")

    def _again(self, name: str, matcher: Matcher, at: int, op: Op = Op.MASK) -> Replay | None:
        """Replay a text after a reset; None where that is not as it was before."""
        self._doing(name, at)
        done = replay(matcher, self._traces[at], op, reset=True)
        self.samples[name].inside_ns += done.inside_ns
        # An errored matcher cannot be reset, and a spent one is never timed.
        if done.end is End.RESET_ERROR and self._known[name, at][0] in _FAILED:
            return None
        return done if self._alike(name, at, done, "a matcher that was reset") else None

    def _sibling(self, name: str, elder: Matcher, at: int) -> None:
        """Replay a text on a clone of a matcher that another text has used."""
        self._doing(name, at)
        if not elder.reset():
            return
        into = self.samples[name]
        with elder.clone() as clone:
            done = replay(clone, self._traces[at])
        into.inside_ns += done.inside_ns
        if self._alike(name, at, done, "a clone"):
            into.sibling_mask_ns.append(done.op_ns)
            into.sibling_consume_ns.append(done.consume_ns)

    def _alike(self, name: str, at: int, done: Replay, on: str) -> bool:
        """Return whether a replay goes as the others of its text; else note the fault."""
        course = (done.end, len(done.steps))
        first = self._known.setdefault((name, at), course)
        if course == first:
            return True
        into = self.samples[name]
        into.fault = into.fault or (
            f"text {at} ends {course[0].name} after {course[1]} steps on {on}, and ended "
            f"{first[0].name} after {first[1]} before"
        )
        return False


_FAILED = (End.MASK_ERROR, End.CONSUME_ERROR)
