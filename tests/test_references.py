"""A history over several reference engines: made-up engines, commits and processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import made_results
import numpy as np
import pytest
from made_answers import answer, times
from made_results import FIRST_MS, commit

from llgbench.asv import alerts, config, references
from llgbench.asv.commit_benchmarks import METRICS, PROCESSES, parameter
from llgbench.asv.references import Link
from llgbench.compare import sides
from llgbench.compare.facts import Difference
from llgbench.compare.messages import Answer, Job, SideTimes
from llgbench.compare.side import Pair, Side
from llgbench.errors import InputError, RecordError
from llgbench.report import site

RATIO, SAME = "masks.Ratios.track_consume", "masks.Sameness.track_masks"
UNITS = {RATIO: "ratio", SAME: "yes"}
CASE, VOCAB = "listed", "llama-bpe"
OLD, MIDDLE, NEW = ("0" * 63 + n for n in "123")
# What each reference costs.
COST = {OLD: 100.0, MIDDLE: 80.0, NEW: 90.0}


def version(reference: str, own: str = "2") -> str:
    return f"{own}, beside {reference}"


def link(old: str, new: str, sd: float = 0.002, *, same: bool = True) -> Link:
    noise = np.random.default_rng(3).lognormal(0, sd, PROCESSES)
    ratios = {"consume": (COST[old] / COST[new] * noise).tolist()}
    row = parameter(CASE, VOCAB)
    return Link(
        old=old, new=new, old_release=f"1.{old[-1]}", new_release=f"1.{new[-1]}", date="2026-12-01",
        ratios={row: ratios}, same_masks={row: same},
    )  # fmt: skip


def history(folder: Path, costs: Mapping[str, list[float]]) -> Path:
    """Write commits of so much cost, some beside each reference, in order; today's is the last."""
    random = np.random.default_rng(5)
    number = 0
    for reference, of_commits in costs.items():
        for cost in of_commits:
            ratio = cost / COST[reference] * float(random.lognormal(0, 0.003))
            made_results.write_commit(
                folder, commit(number), {RATIO: (ratio, 2.576 * 0.003 * ratio), SAME: 1.0},
                date_ms=FIRST_MS + number * made_results.DAY_MS, version=version(reference),
                parameters=(CASE, VOCAB),
            )  # fmt: skip
            number += 1
    made_results.write_index(folder, UNITS, version(list(costs)[-1]))
    return folder


def test_a_new_reference_begins_anew_and_says_so(tmp_path: Path) -> None:
    found = alerts.find(history(tmp_path, {OLD: [100.0] * 20, NEW: [120.0] * 20}))
    assert found.alerts == ()
    assert any("ratios of 20 commits are beside another" in note for note in found.notes)
    assert any("--chain" in note for note in found.notes)


def test_with_a_link_a_regression_at_the_new_reference_is_found(tmp_path: Path) -> None:
    """The commits' ratios alone say 1.0 before and 1.33 after, of which 1.2 is the commits'."""
    history(tmp_path, {OLD: [100.0] * 20, NEW: [120.0] * 20})
    references.add(tmp_path / references.FILE, link(OLD, NEW))
    found = alerts.find(tmp_path)
    (alert,) = found.alerts
    assert (alert.before, alert.after) == (commit(19), commit(20))
    assert alert.old == pytest.approx(100 / 90, rel=0.01)
    assert alert.new / alert.old == pytest.approx(1.2, rel=0.01)
    assert any("20 commits beside llguidance 1.1 are carried over" in n for n in found.notes)


def test_another_reference_alone_is_no_change(tmp_path: Path) -> None:
    history(tmp_path, {OLD: [100.0] * 20, NEW: [100.0] * 20})
    references.add(tmp_path / references.FILE, link(OLD, NEW))
    assert alerts.find(tmp_path).alerts == ()


def test_what_began_beside_the_old_reference_lasts(tmp_path: Path) -> None:
    history(tmp_path, {OLD: [100.0] * 20 + [110.0] * 10, NEW: [110.0] * 3})
    references.add(tmp_path / references.FILE, link(OLD, NEW))
    (alert,) = alerts.find(tmp_path).alerts
    assert (alert.state, alert.after, alert.commits) == ("new", commit(20), 13)


def test_links_follow_each_other_in_any_order(tmp_path: Path) -> None:
    costs = {OLD: [100.0] * 15, MIDDLE: [100.0] * 15, NEW: [125.0] * 15}
    links = [(OLD, MIDDLE), (MIDDLE, NEW)]
    for name, order in (("a", links), ("b", links[::-1])):
        folder = history(tmp_path / name, costs)
        for old, new in order:
            references.add(folder / references.FILE, link(old, new))
        (alert,) = alerts.find(folder).alerts
        assert alert.after == commit(30)
        assert alert.old == pytest.approx(100 / 90, rel=0.01)
    # A link that leads back ends nowhere, and carries nothing.
    folder = history(tmp_path / "round", costs)
    for old, new in ((OLD, MIDDLE), (MIDDLE, OLD)):
        references.add(folder / references.FILE, link(old, new))
    assert alerts.find(folder).alerts == ()


def test_what_is_not_sure_enough_for_the_threshold_carries_nothing(tmp_path: Path) -> None:
    """A factor that is wrong by the threshold would be an alert of nothing."""
    history(tmp_path, {OLD: [100.0] * 20, NEW: [120.0] * 20})
    references.add(tmp_path / references.FILE, link(OLD, NEW, sd=0.014))
    assert len(alerts.find(tmp_path).alerts) == 1
    found = alerts.find(tmp_path, threshold=0.02)
    assert found.alerts == ()
    assert any("left out; its link is not sure enough" in note for note in found.notes)


def test_another_version_of_the_benchmark_itself_is_another_quantity(tmp_path: Path) -> None:
    history(tmp_path, {OLD: [100.0] * 20, NEW: [120.0] * 20})
    made_results.write_index(tmp_path, UNITS, version(NEW, "3"))
    references.add(tmp_path / references.FILE, link(OLD, NEW))
    assert alerts.find(tmp_path).alerts == ()


@pytest.mark.parametrize("same", [True, False])
def test_equal_masks_are_carried_where_the_references_have_equal_masks(
    tmp_path: Path, same: bool
) -> None:
    history(tmp_path, {OLD: [100.0] * 5, NEW: [100.0] * 5})
    made_results.write_commit(
        tmp_path, commit(9), {SAME: 0.0}, date_ms=FIRST_MS + 9 * made_results.DAY_MS,
        version=version(NEW), parameters=(CASE, VOCAB),
    )  # fmt: skip
    for path in (tmp_path / made_results.MACHINE).glob("0000000[5-8]*"):
        path.unlink()
    references.add(tmp_path / references.FILE, link(OLD, NEW, same=same))
    assert [a.benchmark for a in alerts.find(tmp_path).alerts] == [SAME] * same


def test_pages_draw_the_whole_history(tmp_path: Path) -> None:
    history(tmp_path / "results", {OLD: [100.0] * 20, NEW: [120.0] * 20})
    index = site.write(tmp_path / "results", tmp_path / "html")
    assert "20 commits; the newest" in index.read_text()
    references.add(tmp_path / "results" / references.FILE, link(OLD, NEW))
    index = site.write(tmp_path / "results", tmp_path / "html")
    assert "40 commits; the newest" in index.read_text()
    assert "carried over" in index.read_text()


# ---- measured ----


def made_up(job: Job) -> Answer:
    """The old reference, as the head, takes 1.25 times as long as the new one."""

    def side(ns: float) -> SideTimes:
        return times([np.full(100, ns, np.uint64)] * 20, compile_ns=ns * 10, consume_ns=ns / 10)

    load = 1000 * 2**job.number
    found = answer(side(load), side(load * 1.25), job.cases, job.vocab)
    if "other-masks" not in job.cases:
        return found
    differ = Difference(
        "other-masks", "t", 0, "", "", Pair(1, 1), Pair((), ()), Pair(0, 0), Pair("end", "end")
    )
    return replace(found, differences=(differ,))


@pytest.fixture
def two(tmp_path: Path) -> tuple[Side, Side]:
    """The installed wheel, and another library beside it."""
    new = sides.resolve("wheel", lambda _: None)
    other = tmp_path / "old.so"
    other.write_bytes(new.library.read_bytes() + b"\0")
    old = Side("old", other, None, "1.0", "f" * 64)
    return old, new


def test_a_link_is_what_the_old_reference_costs_beside_the_new(two: tuple[Side, Side]) -> None:
    old, new = two
    now = datetime(2026, 12, 1, tzinfo=UTC)
    found = references.measure(old, new, ("a", "other-masks"), ("v",), work=made_up, now=now)
    assert (found.old, found.new, found.date) == (old.sha256, new.sha256, "2026-12-01")
    assert set(found.ratios) == {"a | v", "other-masks | v"}
    for row in found.ratios.values():
        assert set(row) == set(METRICS)
        assert row["consume"] == pytest.approx([1.25] * 3 * PROCESSES)
    assert found.same_masks == {"a | v": True, "other-masks | v": False}
    first, *_, last = references.lines(found)
    assert first.startswith("TBM p50: llguidance 1.0 takes 1.250 to 1.250 of the time")
    assert "1/5 of the threshold" in last


def test_what_cannot_be_chained_is_one_line(two: tuple[Side, Side]) -> None:
    old, new = two
    with pytest.raises(InputError, match="is the reference engine already"):
        references.measure(new, new, ("a",), ("v",), work=made_up)

    def refusing(job: Job) -> Answer:
        return Answer(vocab=job.vocab, cases={}, refused={"a": "no such option"})

    with pytest.raises(InputError, match=r"cannot be measured beside .*: no such option"):
        references.measure(old, new, ("a",), ("v",), work=refusing)


def test_a_link_is_kept_once_and_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / references.FILE
    assert references.read(file) == ()
    for _ in range(2):
        references.add(file, link(OLD, NEW))
    references.add(file, link(OLD, MIDDLE))
    assert references.read(file) == (link(OLD, NEW), link(OLD, MIDDLE))
    whole = json.loads(file.read_text())
    damage: list[Callable[[Any], None]] = [
        lambda d: d.pop("links"),
        lambda d: d["links"][0].pop("new"),
        lambda d: d["links"][0]["ratios"]["listed | llama-bpe"].update(consume=[1.0, -1.0]),
        lambda d: d["links"][0]["ratios"]["listed | llama-bpe"].update(consume=[1.0]),
    ]
    for harm in damage:
        harmed = json.loads(json.dumps(whole))
        harm(harmed)
        file.write_text(json.dumps(harmed))
        with pytest.raises(RecordError, match="chain again"):
            references.read(file)


def test_a_suite_has_the_cases_that_are_chained() -> None:
    assert config.chosen(("a",), ()) == (("a",), ("llama-bpe",))
    assert config.chosen()[0]
