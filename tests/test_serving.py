"""A worker's end of a job: a result, or one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llgbench.errors import CompareError
from llgbench.measure.serving import serve


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "job.json").write_text('{"number": 7}')
    path = tmp_path / "result.json"
    monkeypatch.setattr("sys.argv", ["worker", str(tmp_path / "job.json"), str(path)])
    return path


def test_a_job_becomes_a_result(answer: Path) -> None:
    serve(lambda job: {"twice": 2 * json.loads(job.read_text())["number"]})
    assert json.loads(answer.read_text()) == {"twice": 14}


def test_a_refused_job_is_one_line_and_no_result(
    answer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Path) -> dict[str, Any]:
        raise CompareError("the grammar\nrefuses the text")

    with pytest.raises(SystemExit) as ended:
        serve(refuse)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "the grammar refuses the text\n"
    assert not answer.exists()


def test_a_fault_of_the_worker_itself_is_not_hidden(answer: Path) -> None:
    def fail(_: Path) -> dict[str, Any]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        serve(fail)
    assert not answer.exists()
