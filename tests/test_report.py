from __future__ import annotations

import json
import math
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from asv.results import Results
from hypothesis import given, settings
from hypothesis import strategies as st
from made_records import entry, record, unavailable

from llgbench import shown
from llgbench.errors import InputError, RecordError
from llgbench.records.record import Record
from llgbench.records.times import replays
from llgbench.report import document, tables
from llgbench.report.asv_tables import asv_tables, with_unit
from llgbench.report.frames import frame
from llgbench.report.table import Table
from llgbench.report.view import Column, View

THOUSAND = np.arange(1, 1001, dtype=np.uint64) * 1000  # 1 to 1000 µs


def figure(found: pd.DataFrame, variant: str, stat: str, **where: str) -> Any:
    wanted = {"case": "", "kind": "cold", "measure": "tbm", **where}
    rows = found[(found["variant"] == variant) & (found["stat"] == stat)]
    for name, value in wanted.items():
        rows = rows[rows[name] == value]
    assert len(rows) == 1
    return rows.iloc[0]


def cells(table: Table, row: str) -> dict[str, str]:
    [found] = [r for r in table.rows if r[0] == row]
    return dict(zip(table.headers[1:], found[1:], strict=True))


def by_name(made: Record, name: str) -> list[Table]:
    return [t for t in tables.record_tables(made) if t.name == name]


# ---- what is pooled ------------------------------------------------------------------------------


def test_figures_are_in_microseconds_and_by_arithmetic(tmp_path: Path) -> None:
    found = frame(record(tmp_path, entry(mask=[THOUSAND])))
    assert figure(found, "baseline", "avg").us == 500.5
    assert figure(found, "baseline", "p50").us == 500.5
    assert figure(found, "baseline", "p99").us == pytest.approx(990.01)
    assert figure(found, "baseline", "p100").us == 1000.0
    assert math.isnan(figure(found, "baseline", "p99.9").us)
    assert figure(found, "baseline", "p50").samples == 1000


def test_tbm_is_of_steps_with_mask_and_consume() -> None:
    rejected = entry(mask=[[10, 20, 30]], consume=[[1, 2]])
    assert [a.tolist() for a in replays(rejected, "cold", "tbm")] == [[11, 22]]
    assert [a.tolist() for a in replays(rejected, "cold", "mask")] == [[10, 20, 30]]


def test_ttfm_is_compile_and_first_mask_of_one_replay() -> None:
    second_fails = entry(mask=[[10, 20], [], [30]], compile_ns=[100, 200, 300])
    assert [a.tolist() for a in replays(second_fails, "cold", "ttfm")] == [[110], [], [330]]
    assert [a.tolist() for a in replays(second_fails, "cold", "compile")] == [[100], [200], [300]]


def test_cold_and_warm_are_not_mixed(tmp_path: Path) -> None:
    found = frame(record(tmp_path, entry(mask=[[5000] * 20], warm_mask=[[2000] * 20])))
    assert figure(found, "baseline", "p50").us == 5.0
    assert figure(found, "baseline", "p50", kind="warm").us == 2.0
    assert figure(found, "baseline", "p50", kind="cached", measure="mask").samples == 0
    assert figure(found, "baseline", "p50", kind="sibling").samples == 0


def test_siblings_are_a_kind_of_their_own(tmp_path: Path) -> None:
    made = entry(mask=[[5000] * 20], warm_mask=[[2000] * 20], sibling_mask=[[3000] * 20])
    found = frame(record(tmp_path, made))
    assert figure(found, "baseline", "p50").us == 5.0
    assert figure(found, "baseline", "p50", kind="warm").us == 2.0
    assert figure(found, "baseline", "p50", kind="sibling").us == 3.0


def test_what_is_not_judged_is_not_right(tmp_path: Path) -> None:
    made = record(
        tmp_path,
        entry(mask=[[1000] * 20]),
        entry(case="json-b", mask=[], label="not judged", reason="it has no texts"),
        entry(case="json-c", mask=[[1000] * 20], label="refused", reason="text not in the grammar"),
    )
    [table] = document.headline(made)
    assert cells(table, "verdict") == {"baseline": "right in 1, refused in 1, not judged in 1 of 3"}
    assert figure(frame(made), "baseline", "p50").samples == 40


def test_a_wrong_case_is_not_pooled(tmp_path: Path) -> None:
    made = record(
        tmp_path,
        entry(mask=[[1000] * 20]),
        entry(case="json-b", mask=[[9000] * 20], label="wrong", reason="allows 1 forbidden token"),
    )
    assert figure(frame(made), "baseline", "p100").us == 1.0
    [table] = document.headline(made)
    assert cells(table, "verdict") == {"baseline": "right in 1, wrong in 1 of 2"}


def test_a_limited_case_is_pooled_and_said(tmp_path: Path) -> None:
    made = record(tmp_path, entry(mask=[[1000] * 20]), entry(case="json-b", label="limited"))
    assert figure(frame(made), "baseline", "p50").samples == 40
    [table] = document.headline(made)
    assert cells(table, "verdict") == {"baseline": "right in 1, limited in 1 of 2"}


def test_sets_and_vocabs_have_a_table_each(tmp_path: Path) -> None:
    made = record(
        tmp_path,
        entry(),
        entry(case="o1", tags=["maskbench"]),
        entry(case="listed", tags=["lexer"]),
        entry(vocab="llama-spm"),
    )
    assert [t.title for t in document.headline(made)] == [
        "llama-bpe: 1 MaskBench file, cold, µs",
        "llama-bpe: 1 JSON case, cold, µs",
        "llama-spm: 1 JSON case, cold, µs",
    ]


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 10**9), min_size=1, max_size=30), min_size=2, max_size=4),
    st.randoms(use_true_random=False),
)
def test_pooling_does_not_depend_on_the_order_of_cases(
    masks: list[list[int]], random: Random
) -> None:
    entries = [
        entry(variant, case=f"json-{n}", mask=[mask])
        for n, mask in enumerate(masks)
        for variant in ("baseline", "token_to_piece")
    ]
    shuffled = list(entries)
    random.shuffle(shuffled)
    one, other = (
        frame(Record(Path("x"), {"provenance": {}}, tuple(e), True, False))
        for e in (entries, shuffled)
    )
    pooled = [f[f["case"] == ""].reset_index(drop=True) for f in (one, other)]
    pd.testing.assert_frame_equal(pooled[0], pooled[1])


# ---- ratios --------------------------------------------------------------------------------------


def test_a_ratio_is_over_cases_right_in_both(tmp_path: Path) -> None:
    made = record(
        tmp_path,
        entry(mask=[[1000] * 20]),
        entry("token_to_piece", mask=[[3000] * 20]),
        entry(case="json-b", mask=[[1] * 20], label="wrong"),
        entry("token_to_piece", case="json-b", mask=[[9000] * 20]),
    )
    found = figure(frame(made), "token_to_piece", "p50")
    assert found.us == 6.0
    assert found.ratio == 3.0
    [table] = document.headline(made)
    assert cells(table, "ratio over") == {"baseline": "is the baseline", "token_to_piece": "1 case"}


def test_a_wrong_variant_shows_its_verdict_in_place_of_a_ratio(tmp_path: Path) -> None:
    made = record(
        tmp_path,
        entry(mask=[[1000] * 20]),
        entry("token_to_piece", mask=[[1] * 20], label="wrong", reason="allows 9 | forbidden"),
    )
    [table] = document.headline(made)
    assert cells(table, "ratio over")["token_to_piece"] == "wrong"
    assert cells(table, "verdict")["token_to_piece"] == "right in 0, wrong in 1 of 1"
    assert cells(table, "TBM p50")["token_to_piece"] == "–"
    assert frame(made)["ratio"].isna().all()
    text = document.markdown([made])
    assert "wrong: allows 9 \\| forbidden" in text
    assert "×)" not in text


def test_a_wrong_baseline_gives_no_ratio(tmp_path: Path) -> None:
    made = record(tmp_path, entry(label="wrong"), entry("token_to_piece"))
    [table] = document.headline(made)
    assert cells(table, "ratio over")["token_to_piece"] == "baseline is wrong"
    assert cells(table, "TBM p50")["token_to_piece"] == "1.00"


def test_a_ratio_is_over_the_steps_that_both_took(tmp_path: Path) -> None:
    # The baseline stops after 20 steps; what the other does later has no counterpart.
    made = record(
        tmp_path,
        entry(mask=[[1000] * 21], consume=[[0] * 20], label="limited"),
        entry("greedy_lexeme_fallback", mask=[[2000] * 20 + [50_000] * 80]),
    )
    assert figure(frame(made), "greedy_lexeme_fallback", "avg").ratio == 2.0


def test_no_baseline_no_ratio(tmp_path: Path) -> None:
    made = record(tmp_path, entry("token_to_piece"))
    [table] = document.headline(made)
    assert cells(table, "ratio over") == {"token_to_piece": "no baseline run"}


@pytest.mark.parametrize(
    ("rounds", "last", "shown"),
    [
        (5, 2000, "2.00 (2.00×)"),
        (2, 2000, "2.00 (≈2.00×)"),  # too few rounds to tell
        (5, 900, "2.00 (≈2.00×)"),  # one round disagrees
    ],
)
def test_a_ratio_that_the_rounds_do_not_confirm_is_marked(
    tmp_path: Path, rounds: int, last: int, shown: str
) -> None:
    made = record(
        tmp_path,
        entry(mask=[[1000] * 20] * rounds),
        entry("token_to_piece", mask=[*[[2000] * 20] * (rounds - 1), [last] * 20]),
    )
    [table] = document.headline(made)
    assert cells(table, "TBM p50")["token_to_piece"] == shown


# ---- other tables --------------------------------------------------------------------------------


def test_what_is_not_available_is_listed_with_its_reason(tmp_path: Path) -> None:
    gone = [unavailable("greedy_lexeme_fallback", "no engine", case=c) for c in ("json-a", "b")]
    made = record(tmp_path, entry(), entry(case="b"), *gone)
    [table] = by_name(made, "unavailable")
    assert table.rows == (
        ("greedy_lexeme_fallback", "2", "json-a on llama-bpe, b on llama-bpe", "no engine"),
    )
    [headline] = document.headline(made)
    assert cells(headline, "verdict")["greedy_lexeme_fallback"] == "not available"


def test_a_case_that_ran_nowhere_is_counted(tmp_path: Path) -> None:
    made = record(tmp_path, entry(), unavailable("baseline", "does not compile", case="b"))
    [table] = document.headline(made)
    assert cells(table, "verdict") == {"baseline": "right in 1, not available in 1 of 2"}


def test_checkpoints_are_shown_by_n(tmp_path: Path) -> None:
    made = record(
        tmp_path,
        *(
            entry(v, case=f"checkpoint@{n}", value=n, tags=["checkpoint"], label=label,
                  mask=[[n * 1000] * 19 + [n * 2000]])
            for n in (64, 16)
            for v, label in (("baseline", "limited"), ("token_to_piece", "right"))
        ),
    )  # fmt: skip
    [table] = by_name(made, "checkpoints")
    assert table.rows == (
        ("16", "16.0", "32.0 (limited)", "16.0", "32.0"),
        ("64", "64.0", "128 (limited)", "64.0", "128"),
    )


def test_each_case_has_its_rows_with_the_verdict(tmp_path: Path) -> None:
    made = record(tmp_path, entry(), entry("token_to_piece", label="limited", reason="as recorded"))
    [table] = by_name(made, "cases")
    assert [row[:3] + row[-1:] for row in table.rows] == [
        ("json-a", "llama-bpe", "baseline", "right"),
        ("json-a", "llama-bpe", "token_to_piece", "limited: as recorded"),
    ]


def test_columns_stand_in_the_variants_order(tmp_path: Path) -> None:
    variants = ("baseline", "token_to_piece", "greedy_tokenize")
    for number, order in enumerate(permutations(variants)):
        made = record(tmp_path / str(number), *(entry(v) for v in order))
        assert View(made).columns == tuple(Column(v) for v in variants)


def test_an_engine_asked_for_by_name_is_a_column_of_its_own(tmp_path: Path) -> None:
    made = record(
        tmp_path, entry(mask=[[1000] * 20]), entry(engine="wheel-1.7.6", mask=[[4000] * 20])
    )
    [table] = document.headline(made)
    assert cells(table, "TBM p50") == {
        "baseline": "1.00", "baseline on wheel-1.7.6": "4.00 (≈4.00×)"
    }  # fmt: skip


# ---- Markdown, JSON ------------------------------------------------------------------------------


def rich_record(folder: Path) -> Record:
    return record(
        folder,
        entry(mask=[THOUSAND]),
        entry("token_to_piece", mask=[THOUSAND * 2]),
        unavailable("greedy_lexeme_fallback"),
        entry(case="checkpoint@16", value=16, tags=["checkpoint"], label="wrong", reason="a|b\nc"),
    )


def test_rows_are_as_wide_as_their_headers(tmp_path: Path) -> None:
    for table in tables.record_tables(rich_record(tmp_path)):
        assert {len(row) for row in table.rows} <= {len(table.headers)}


def test_markdown_says_where_and_how_to_do_it_again(tmp_path: Path) -> None:
    text = document.markdown([rich_record(tmp_path)], pictures={"tails": Path("tails.png")})
    for said in (
        "commit 0123456789ab with changes feed", "Some CPU", "governor unknown",
        "empty step reads 30.0 ns", "wheel 1.9.1 (sha256 abababababab) for baseline",
        "llama-bpe (128256 tokens, sha256 cdcdcdcdcdcd)", "`llgbench run --case json-a",
        "![Tails of TBM by variant](tails.png)", "<details>", *tables.RULES,
    ):  # fmt: skip
        assert said in text
    assert text.count("<details>") == text.count("</details>")
    assert "nan" not in text


def test_the_fallbacks_overhead_stands_beside_its_limits(tmp_path: Path) -> None:
    kept = {
        "vocab": "llama-bpe",
        "summary": [{"what": "a mask", "limit": 2.0, "measured": 1.5, "at": "listed", "met": True}],
        "checkpoints": [{"n": 64, "strategy": "shadow", "costliest": 161904, "median": 77430.0}],
    }
    text = document.markdown([rich_record(tmp_path)], overhead=kept)
    section = text[text.index("### The greedy lexeme fallback") :]
    assert "| a mask | 2 | 1.5 | listed | yes |" in section
    assert "`llgbench overhead --count`" in section
    assert "| 64 | shadow | 161,904 | 77,430 |" in section
    found = document.tables([rich_record(tmp_path)], overhead=kept)
    assert [t["rows"] for t in found if t["table"] == "fallback"] == [
        kept["summary"], kept["checkpoints"],
    ]  # fmt: skip
    assert "greedy lexeme fallback" not in document.markdown([rich_record(tmp_path)])


def test_an_unfinished_run_is_called_so(tmp_path: Path) -> None:
    text = document.markdown([record(tmp_path, entry(), complete=False)])
    assert "the run was not finished" in text


def test_runs_are_not_pooled_with_each_other(tmp_path: Path) -> None:
    made = [record(tmp_path, entry(mask=[[n * 1000] * 20]), mark=str(n)) for n in (1, 5)]
    text = document.markdown(made)
    assert text.count("### Run of") == 2
    assert "| TBM p50 | 1.00 |" in text
    assert "| TBM p50 | 5.00 |" in text


def test_tables_are_plain_json(tmp_path: Path) -> None:
    found = json.loads(json.dumps(document.tables([rich_record(tmp_path)]), allow_nan=False))
    headline = next(t for t in found if t["table"] == "headline")
    row = next(
        r for r in headline["rows"]
        if (r["variant"], r["measure"], r["stat"]) == ("token_to_piece", "tbm", "p50")
    )  # fmt: skip
    assert row["us"] == 1001.0
    assert row["ratio"] == 2.0
    assert row["confirmed"] is False
    assert row["verdict"] == "right in 1 of 1"


def test_nothing_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no record"):
        document.markdown([])
    with pytest.raises(RecordError, match="nothing was measured; run"):
        document.markdown([record(tmp_path / "a")])
    with pytest.raises(RecordError, match="not available: no engine"):
        document.headline(record(tmp_path / "b", unavailable("baseline")))


def test_report_is_written_with_its_pictures(tmp_path: Path) -> None:
    path = document.write([rich_record(tmp_path / "records")], tmp_path)
    text = path.read_text()
    assert path == tmp_path / "report.md"
    assert "(tails.png)" in text
    assert "(checkpoints.png)" in text
    assert not list(tmp_path.glob("*.part"))


def test_report_into_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot write"):
        document.write([rich_record(tmp_path / "records")], tmp_path / "file")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0.00"), (1.234, "1.23"), (9.996, "10.0"), (12.34, "12.3"),
     (99.96, "100"), (1234567.0, "1,234,567")],
)  # fmt: skip
def test_numbers_have_three_significant_digits(value: float | None, text: str) -> None:
    assert shown.number(value) == text


# ---- ASV -----------------------------------------------------------------------------------------


def asv_file(folder: Path, commit: str, date: int, value: float | None) -> Path:
    machine = folder / "box"
    machine.mkdir(exist_ok=True)
    (machine / "machine.json").write_text('{"machine": "box", "version": 1}')
    (folder / "benchmarks.json").write_text(
        json.dumps({"version": 2, "grid.Times.track_p99": {"unit": "ns"}})
    )
    path = machine / f"{commit[:8]}-env.json"
    path.write_text(
        json.dumps(
            {
                "commit_hash": commit, "env_name": "env", "date": date, "python": "3.11",
                "params": {"machine": "box"}, "requirements": {}, "env_vars": {},
                "result_columns": ["result", "params", "version", "started_at"],
                "results": {
                    "grid.Times.track_p99": [
                        [value, float("nan"), None], [["'a | b'", "'c'", "'d'"]], "1", 0,
                    ],
                    "grid.Broken.track_it": [None, [["1", "2"], ["3"]], "1", 0],
                    "plain.track_count": [[7], [], "1", 0],
                },
                "durations": {}, "version": 2,
            }
        )
    )  # fmt: skip
    return path


def test_the_newest_commit_of_asv_is_shown(tmp_path: Path) -> None:
    asv_file(tmp_path, "a" * 40, 100, 1000.0)
    path = asv_file(tmp_path, "b" * 40, 200, 2500.0)
    Results.load(str(path))  # the made file is one of ASV's
    found = document.read_asv(tmp_path)
    assert {v.commit for v in found} == {"b" * 40}
    [table] = asv_tables(found)
    assert table.rows == (
        ("grid.Times.track_p99", "a | b", "2.50 µs"),
        ("plain.track_count", "", "7"),
    )
    failed, not_applicable = table.notes
    assert failed.startswith("3 values more: failed")
    assert not_applicable.startswith("1 value more: n/a")
    assert [(v["value"], v["missing"]) for v in table.data if v["parameters"] == ["c"]] == [
        (None, "n/a")
    ]
    json.dumps(table.data, allow_nan=False)


def test_no_asv_results_no_section(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    assert document.read_asv(tmp_path) == []
    assert document.read_asv(tmp_path / "nowhere") == []
    assert "ASV" not in document.markdown([rich_record(tmp_path / "records")])


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "not a whole result file"), ("[]", "not a whole result file"),
     ('{"version": 3}', "version 3"), ('{"version": 2}', "not a whole result file")],
)  # fmt: skip
def test_damaged_asv_results_are_refused(tmp_path: Path, content: str, message: str) -> None:
    asv_file(tmp_path, "a" * 40, 100, 1.0).write_text(content)
    with pytest.raises(RecordError, match=message):
        document.read_asv(tmp_path)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(None, "seconds", ""), (0.0015, "seconds", "1,500 µs"), (2**21, "bytes", "2.00 MiB"),
     (3.5, "", "3.50"), (3.0, "tokens", "3 tokens")],
)  # fmt: skip
def test_values_are_shown_with_their_unit(value: float | None, unit: str, text: str) -> None:
    assert with_unit(value, unit) == text
