"""ASV's files: what is read, and that everything else is one line that names the file."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made_results
import pytest
from asv.results import Results as AsvResults
from click.testing import CliRunner
from conftest import FUZZ
from hypothesis import given, settings
from hypothesis import strategies as st
from made_results import commit

from llgbench.asv import results as asv_results
from llgbench.commands.alerts import alerts_command
from llgbench.errors import LlgbenchError, RecordError

NAME = "masks.Ratios.track_ttfm"


def test_a_file_that_asv_reads_is_read_alike(tmp_path: Path) -> None:
    path = made_results.write_commit(tmp_path, commit(1), {NAME: (1.5, 0.1)}, started_ms=7)
    theirs = AsvResults.load(str(path))
    (ours,) = asv_results.read(tmp_path)
    (one,) = ours.measurements
    assert (ours.commit, ours.date_ms) == (theirs.commit_hash, theirs.date)
    assert [one.value] == theirs.get_result_value(NAME, theirs.get_result_params(NAME))
    assert one.parameters == ("listed",)
    assert one.error == pytest.approx(0.1 / 2.576)
    assert (one.version, one.started_ms, one.missing) == ("1", 7, "")


def test_what_has_no_value_says_why(tmp_path: Path) -> None:
    values: dict[str, made_results.Value] = {"a": None, "b": math.nan, "c": math.inf, "d": 0.0}
    made_results.write_commit(tmp_path, commit(1), values)
    (ours,) = asv_results.read(tmp_path)
    assert {one.benchmark: (one.value, one.missing) for one in ours.measurements} == {
        "a": (None, "failed"), "b": (None, "n/a"), "c": (None, "n/a"), "d": (0.0, ""),
    }  # fmt: skip


def test_an_environment_is_named_by_all_that_tells_it_from_others(tmp_path: Path) -> None:
    names = set()
    others: list[dict[str, Any]] = [
        {}, {"python": "3.13"}, {"requirements": {"llguidance": "1.9.0"}},
        {"env_vars": {"LLGUIDANCE": "x"}}, {"environment": "virtualenv-py3.13", "python": "3.13"},
    ]  # fmt: skip
    for number, more in enumerate(others):
        made_results.write_commit(tmp_path / str(number), commit(number), {NAME: 1.0}, **more)
        names.add(asv_results.read(tmp_path / str(number))[0].environment)
    assert len(names) == len(others)
    assert made_results.ENVIRONMENT in names


def test_results_of_a_checkout_lie_in_its_folder_asv(tmp_path: Path) -> None:
    made_results.write_commit(tmp_path / "asv", commit(1), {NAME: 1.0})
    made_results.write_index(tmp_path / "asv", {NAME: "ratio"})
    made_results.write_commit(tmp_path / "reference", commit(2), {NAME: 1.0}, machine="reference")
    assert [one.commit for one in asv_results.read(tmp_path)] == [commit(1)]
    assert [value.unit for value in asv_results.read_asv(tmp_path)] == ["ratio"]
    assert [one.commit for one in asv_results.read(tmp_path / "reference")] == [commit(2)]
    made_results.write_commit(tmp_path, commit(3), {NAME: 1.0}, machine="forgotten")
    with pytest.raises(RecordError, match=r"forgotten.*move"):
        asv_results.read(tmp_path)


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"version": 3}, "version 3"),
        ({"version": "2"}, "version '2'"),
        ({"date": None}, r"\$.date"),
        ({"date": 10**30}, "date"),
        ({"durations": "x"}, r"\$.durations"),
        ({"params": None}, r"\$.params"),
        ({"params": {"machine": "other"}}, "in the folder of 'runner'"),
        ({"results": []}, r"\$.results"),
        ({"results": {NAME: []}}, "track_ttfm"),
        ({"results": {NAME: [[1.0, 2.0], [["'a'"]]]}}, "2 values, its parameters have 1"),
        ({"results": {NAME: [["fast"], [["'a'"]]]}}, "track_ttfm"),
        ({"results": {NAME: [None, [["'a'"] * 1000] * 3]}}, "more combinations"),
        ({"commit_hash": ""}, "commit_hash"),
    ],
)
def test_what_is_damaged_names_file_and_place(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    path = made_results.write_commit(tmp_path, commit(1), {NAME: 1.0})
    change(path, **fields)
    for read in (asv_results.read, asv_results.read_asv):
        with pytest.raises(RecordError, match=message) as refused:
            read(tmp_path)
        assert str(path) in str(refused.value)


def test_the_first_version_says_how_it_is_updated(tmp_path: Path) -> None:
    path = made_results.write_commit(tmp_path, commit(1), {NAME: 1.0})
    content = json.loads(path.read_text())
    del content["version"]
    path.write_text(json.dumps({**content, "results": {NAME: 0.01}}))
    for read in (asv_results.read, asv_results.read_asv):
        with pytest.raises(RecordError, match=r"version 1.*asv update"):
            read(tmp_path)


@pytest.mark.parametrize("name", ["machine.json", "benchmarks.json", "result"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"null", b"[]", b"\xff", b"[" * 100_000, b"1" * 9999]
)
def test_no_file_is_passed_over(tmp_path: Path, name: str, content: bytes) -> None:
    result = made_results.write_commit(tmp_path, commit(1), {NAME: 1.0})
    made_results.write_index(tmp_path, {NAME: "ratio"})
    path = {
        "machine.json": result.with_name("machine.json"), "result": result,
        "benchmarks.json": tmp_path / "benchmarks.json",
    }[name]  # fmt: skip
    path.write_bytes(content)
    with pytest.raises(RecordError, match=path.name):
        asv_results.read_asv(tmp_path)


def test_a_fifo_and_a_missing_machine_file_are_refused(tmp_path: Path) -> None:
    path = made_results.write_commit(tmp_path, commit(1), {NAME: 1.0})
    os.mkfifo(path.with_name("00000002-env.json"))
    with pytest.raises(RecordError, match="not a regular file"):
        asv_results.read(tmp_path)
    path.with_name("machine.json").unlink()
    with pytest.raises(RecordError, match=r"machine\.json: it is missing"):
        asv_results.read(tmp_path)


# ---- fuzz ----

# What JSON can hold in any place, the hard ones first.
WRONG = st.one_of(
    st.sampled_from([None, True, -1, 10**400, -(10**30), math.nan, math.inf, -math.inf, 1e308, 0,
                     "", "\ud800", "\n\x00\x1b[31m", "[red]", "'", "'\\x'", [], {}, [[]], [None],
                     {"": None}, "x" * 10_000]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner,
                                                                    max_size=3),
        max_leaves=5,
    ),
)  # fmt: skip


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value in a JSON document."""
    yield path
    if isinstance(content, dict | list):
        keys = content if isinstance(content, dict) else range(len(content))
        for key in keys:
            yield from places(content[key], (*path, key))


def replaced(content: Any, path: tuple[Any, ...], value: Any, how: str) -> Any:
    if not path:
        return value
    owner = content
    for key in path[:-1]:
        owner = owner[key]
    if how == "take away":
        del owner[path[-1]]
    elif how == "rename" and isinstance(owner, dict):
        owner[str(value)] = owner.pop(path[-1])
    else:
        owner[path[-1]] = value
    return content


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return results that have everything: times, ratios, facts, two environments, an alert."""
    folder = tmp_path_factory.mktemp("fuzz")
    for number in range(10):
        by = 1.0 + 0.3 * (number > 6)
        values: dict[str, made_results.Value] = {
            "masks.Masks.track_ttfm": 100.0 * by, NAME: (by, 0.01),
            "masks.Sameness.track_masks": float(number < 8), "other.time_read": 0.01 * by,
        }  # fmt: skip
        environment = "virtualenv-py3.13" if number % 3 == 2 else made_results.ENVIRONMENT
        made_results.write_commit(
            folder, commit(number), values, environment=environment, started_ms=number,
            date_ms=made_results.FIRST_MS + number * made_results.DAY_MS,
        )  # fmt: skip
    made_results.write_index(
        folder,
        {"masks.Masks.track_ttfm": "ns", NAME: "ratio", "masks.Sameness.track_masks": "yes",
         "other.time_read": "seconds"},
    )  # fmt: skip
    return folder


def answered(folder: Path) -> None:
    """Hold that alerts and the report's reader give a result, or one line."""
    for options in ([], ["--json"]):
        done = CliRunner().invoke(alerts_command, ["--results", str(folder), *options])
        if isinstance(done.exception, LlgbenchError):
            # The command line joins the lines of a message; the file must be in it.
            assert str(folder) in str(done.exception)
        else:
            assert done.exit_code in (0, 1), done.exception
            assert isinstance(done.exception, SystemExit | None), done.exception
            if options:
                json.loads(done.stdout)
    try:
        asv_results.read_asv(folder)
    except LlgbenchError as error:
        str(error).encode()


def mutate(whole: Path, data: st.DataObject) -> None:
    paths = sorted(whole.rglob("*.json"))
    path = data.draw(st.sampled_from(paths))
    before = path.read_bytes()
    if data.draw(st.booleans()):
        content = json.loads(before)
        place = data.draw(st.sampled_from(list(places(content))))
        how = data.draw(st.sampled_from(["replace", "replace", "take away", "rename"]))
        changed = json.dumps(replaced(content, place, data.draw(WRONG), how)).encode()
    else:
        noise = random.Random(data.draw(st.integers(0, 2**32)))
        at = noise.randrange(len(before))
        changed = data.draw(
            st.sampled_from(
                [before[:at], before[:at] + bytes([noise.randrange(256)]) + before[at + 1 :],
                 before[:at] + before[at + 1 :], before[:at] + before, before[at:]]
            )
        )  # fmt: skip
    path.write_bytes(changed)
    try:
        answered(whole)
    finally:
        path.write_bytes(before)


@pytest.mark.fuzz
@settings(max_examples=FUZZ)
@given(data=st.data())
def test_results_that_were_tampered_with_end_in_a_result_or_one_line(
    whole: Path, data: st.DataObject
) -> None:
    mutate(whole, data)


def test_the_whole_results_have_alerts(whole: Path) -> None:
    """What the fuzz begins with is read to the end."""
    done = CliRunner().invoke(alerts_command, ["--results", str(whole)])
    assert done.exit_code == 1
    assert "NEW" in done.stdout


def test_results_from_before_parameters_were_axes_are_read(tmp_path: Path) -> None:
    """One joined string, nanoseconds, and in the oldest no unit at all."""
    from llgbench.asv import metrics, series
    from llgbench.asv.history import History
    from llgbench.report.asv_tables import asv_tables

    benchmark, joined = "grid.Cases.track_cold_mask_p50", "listed | llama-bpe | baseline"
    path = made_results.write_commit(tmp_path, made_results.commit(1), {benchmark: 25_400.0})
    path.write_text(path.read_text().replace("'listed'", f"'{joined}'"))
    made_results.write_index(tmp_path, {benchmark: "ns"})
    (table,) = asv_tables(asv_results.read_asv(tmp_path))
    assert table.rows == ((benchmark, joined, "25.4 µs"),)
    known = asv_results.benchmarks(tmp_path)
    ((one, points),) = series.collect(asv_results.read(tmp_path), known, History()).items()
    assert (one.parameters, [point.value for point in points]) == (joined, [25_400.0])
    for unit in ("ns", "unit", ""):
        assert metrics.of(benchmark, unit) == metrics.NS
