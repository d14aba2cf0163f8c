"""How an alert reads."""

from __future__ import annotations

from typing import Any

import pytest

from llgbench.asv.alert import Alert


def alert(**more: Any) -> Alert:
    made: dict[str, Any] = {
        "source": "asv", "machine": "vm", "environment": "py3.12", "branch": "main",
        "benchmark": "masks.Ratios.track_ttfm", "parameters": "listed", "before": "a" * 40,
        "after": "b" * 40, "old": 1.0, "new": 1.25, "unit": "ratio", "since": "2026-11-30",
        "commits": 3,
    }  # fmt: skip
    return Alert(**{**made, **more})


def test_one_line_says_series_change_range_and_state() -> None:
    assert str(alert()) == (
        "masks.Ratios.track_ttfm (listed) on vm, py3.12, main: +25.0%, 1 → 1.25 ratio, "
        "aaaaaaaaaa..bbbbbbbbbb, open since 2026-11-30, 3 commits"
    )


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"old": 0.0, "new": 6136.0, "unit": "count"}, ": 0 → 6,136 count,"),
        ({"old": 3.0, "new": 0.0, "unit": "count"}, ": 3 → 0 count,"),
        ({"old": 1234567.8, "new": 2e6, "unit": "ns"}, "+62.0%, 1,234,568 → 2,000,000 ns"),
        ({"state": "closed", "until": "c" * 40}, "closed by cccccccccc, after 3 commits since"),
        ({"state": "accepted", "reason": "on purpose"}, "accepted (on purpose), since 2026-11-30"),
        ({"state": "better"}, "better since 2026-11-30"),
        ({"commits": 1}, ", 1 commit"),
        ({"source": "records", "environment": "", "branch": "", "before": "20261130T0-a",
          "after": "20261130T1-b"}, "on vm: +25.0%, 1 → 1.25 ratio, 20261130T0-a..20261130T1-b, "
         "open since 2026-11-30"),
        ({"parameters": ""}, "masks.Ratios.track_ttfm on vm"),
    ],
)  # fmt: skip
def test_parts(more: dict[str, Any], text: str) -> None:
    assert text in str(alert(**more))
