"""How often alerts are wrong, and what they find, on made-up histories of 100 commits.

    python tools/alert_power.py chance --series 400      false alarms and power
    python tools/alert_power.py shapes --series 20       a creep, a mended step, a loaded night
    ... --released 40                                    compared with the level that the first 40
                                                         commits end with, as since a tag
    ... --split ruptures                                 by another way to find levels; needs the
                                                         packages ruptures, apache-otava

A false alarm is a history without a change that has an open alert on any of its nights: alerts
are looked for after every commit, as a nightly job does. Power is the share of histories whose step
is an open alert after so many commits with it.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from llgbench.asv import levels, rises
from llgbench.asv.commit_benchmarks import PROCESSES
from llgbench.asv.levels import Level

Floats = npt.NDArray[np.float64]
Find = Callable[[Floats, Sequence[float | None]], list[Level]]

COMMITS = 100
THRESHOLD = 0.05
STEP_AT = 60
STEPS = (0.02, 0.03, 0.05, 0.10)
AFTER = (1, 2, 5, 20)


@dataclass(frozen=True)
class Noise:
    """What moves the values of a history without a change.

    Attributes:
        name: as the table has it.
        sd: of each commit's value, relative, independent of the others.
        walk: by how much the machine changes from commit to commit, and stays changed.
        beside: a fixed engine is measured beside: it takes the walk away, and the interval of
            the samples says how unsure a value is.
    """

    name: str
    sd: float
    walk: float = 0.0
    beside: bool = False

    def history(self, random: np.random.Generator) -> tuple[Floats, list[float | None]]:
        """Return the logarithms of a history's values, and their errors."""
        values = random.normal(0, self.sd, COMMITS)
        if not self.beside:
            return values + np.cumsum(random.normal(0, self.walk, COMMITS)), [None] * COMMITS
        # As twelve samples tell it.
        freedom = PROCESSES - 1
        errors = self.sd * np.sqrt(random.chisquare(freedom, COMMITS) / freedom)
        return values, list(map(float, errors))


NOISE = [
    Noise(f"{sd:.0%}, {name}", sd, walk, beside)
    for sd in (0.01, 0.03)
    for name, walk, beside in (
        ("beside a fixed engine", 0.01, True),
        ("alone", 0.0, False),
        ("alone, machine walks 0.3% a commit", 0.003, False),
        ("alone, machine walks 1% a commit", 0.01, False),
    )
]


def by_parts(values: Floats, errors: Sequence[float | None], bounds: Sequence[int]) -> list[Level]:
    """Return the levels between bounds that another library found."""
    known = [error for error in errors if error is not None]
    spread = levels.spread_of(values, known if len(known) == len(values) else None)
    found = []
    for start, stop in zip([0, *bounds], [*bounds, len(values)], strict=True):
        error = float(np.sqrt(np.mean(spread[start:stop] ** 2) / (stop - start)))
        found.append(Level(start, stop - 1, float(values[start:stop].mean()), error))
    return found


def by_ruptures(values: Floats, errors: Sequence[float | None]) -> list[Level]:
    """Find levels by ruptures: PELT, with the same price of a level."""
    import ruptures

    least = 1 if errors[0] is not None else 2
    if len(values) < 2 * least:
        return by_parts(values, errors, [])
    known = [error for error in errors if error is not None]
    spread = levels.spread_of(values, known if len(known) == len(values) else None)
    price = levels.DISTANCE**2 * float(np.mean(spread**2))
    search = ruptures.Pelt(model="l2", min_size=least, jump=1).fit(values)
    return by_parts(values, errors, search.predict(pen=price)[:-1])


def by_otava(values: Floats, errors: Sequence[float | None]) -> list[Level]:
    """Find levels by Apache Otava: E-divisive with its t-test, as it is set by default."""
    from otava.analysis import compute_change_points

    points, _ = compute_change_points(list(map(float, np.exp(values))))
    return by_parts(values, errors, [point.index for point in points])


FIND: dict[str, Find] = {"own": levels.find, "ruptures": by_ruptures, "otava": by_otava}


def is_open(
    find: Find, values: Floats, errors: Sequence[float | None], threshold: float, released: int = 0
) -> bool:
    """Return whether a history has an open alert."""
    rule = rises.Rule(math.log1p(threshold))
    found = levels.find(values, errors, released) if released else find(values, errors)
    fixed, later = rises.parted(found, released)
    return any(rise.until is None for rise in rises.find(later, rule, fixed=fixed))


def false_alarm(split: str, noise: Noise, threshold: float, released: int, seed: int) -> bool:
    """Return whether one history without a change has an alert on any night."""
    values, errors = noise.history(np.random.default_rng([seed, 0]))
    return any(
        is_open(FIND[split], values[:night], errors[:night], threshold, released)
        for night in range(max(2, released + 1), COMMITS + 1)
    )


def detected(
    split: str, noise: Noise, threshold: float, released: int, step: float, seed: int
) -> list[bool]:
    """Return whether a step is an alert after so many commits with it."""
    values, errors = noise.history(np.random.default_rng([seed, 1]))
    values[STEP_AT:] += math.log1p(step)
    return [
        is_open(FIND[split], values[: STEP_AT + n], errors[: STEP_AT + n], threshold, released)
        for n in AFTER
    ]


CREEP = np.log([1.0] * 40 + [1.01**n for n in range(1, 11)] + [1.01**10] * 50)
MENDED = np.log([1.0] * 40 + [1.1] * 20 + [1.0] * 40)
NEWEST = np.log([1.0] * 98 + [1.12] * 2)


def shapes(split: str, seed: int) -> dict[str, bool]:
    """Return what one history of each shape is told to be: True where that is right."""
    random = np.random.default_rng([seed, 2])

    def told(values: Floats, sd: float, commits: int = COMMITS) -> list[rises.Rise]:
        noisy = (values + random.normal(0, sd, COMMITS))[:commits]
        return rises.find(FIND[split](noisy, [sd] * commits), rises.Rule(math.log1p(THRESHOLD)))

    def lasts(found: list[rises.Rise], first: range, last: range) -> bool:
        if len(found) != 1 or found[0].until is not None:
            return False
        return found[0].before in first and found[0].after in last

    found = {}
    for sd in (0.01, 0.03):
        found[f"creep, {sd:.0%}"] = lasts(told(CREEP, sd), range(33, 47), range(43, 58))
        mended = told(MENDED, sd)
        found[f"mended, {sd:.0%}"] = len(mended) == 1 and mended[0].until is not None
    found["+12% in the newest commit, 1%"] = lasts(
        told(NEWEST, 0.01, 99), range(97, 98), range(98, 99)
    )
    found["+12% in two commits, 1%"] = lasts(told(NEWEST, 0.01), range(97, 98), range(98, 99))
    loaded = random.normal(0, 0.01, COMMITS) + np.where(random.random(COMMITS) < 0.03, 0.2, 0)
    found["no change, 1%, 3 of 100 nights 22% slower"] = not any(
        is_open(FIND[split], loaded[:night], [None] * night, THRESHOLD)
        for night in range(10, COMMITS + 1, 2)
    )
    return found


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["chance", "shapes"])
    parser.add_argument("--series", type=int, default=1000, help="histories of each kind")
    parser.add_argument("--threshold", type=float, default=THRESHOLD)
    parser.add_argument("--split", choices=list(FIND), default="own")
    parser.add_argument("--released", type=int, choices=range(1, STEP_AT), default=0)
    given = parser.parse_args()
    seeds = range(given.series)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        if given.what == "shapes":
            every = list(pool.map(partial(shapes, given.split), seeds))
            print("| history; noise of a value | as it should be |\n| --- | ---: |")
            for name in every[0]:
                right = sum(found[name] for found in every)
                print(f"| {name} | {right} of {given.series} |")
            return
        print(f"| noise of a commit's value | histories with a false alarm in {COMMITS} nights |")
        print("| --- | ---: |")
        for noise in NOISE:
            work = partial(false_alarm, given.split, noise, given.threshold, given.released)
            wrong = sum(pool.map(work, seeds, chunksize=8))
            print(f"| {noise.name} | {wrong} of {given.series} |", flush=True)
        print()
        print(f"| noise | step | {' | '.join(f'after {n}' for n in AFTER)} |")
        print(f"| --- | --- |{' ---: |' * len(AFTER)}")
        for noise in (n for n in NOISE if n.beside or not n.walk):
            for step in STEPS:
                found = partial(detected, given.split, noise, given.threshold, given.released, step)
                share = np.mean(list(pool.map(found, seeds, chunksize=8)), axis=0)
                cells = " | ".join(f"{x:.0%}" for x in share)
                print(f"| {noise.name} | {step:.0%} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
