"""Each addition of docs/architecture.md, made for real in a copy and seen in what comes out.

An addition touches the files that its row names and no others, three at most.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = "src/llgbench"


@dataclass(frozen=True)
class Addition:
    """Something that somebody adds.

    Attributes:
        edits: by file, what is put after a piece of it; an empty piece makes a new file.
        run: the program that shows it.
        shows: what is then in its output.
    """

    edits: Mapping[str, tuple[tuple[str, str], ...]]
    run: str
    shows: str


def command(*words: str) -> str:
    return (
        f"import sys; sys.argv = ['llgbench', *{words!r}]; "
        "from llgbench.commands.cli import main; main()"
    )


ON_SPM = ("--vocab", "llama-spm", "--results", ".")
ADDITIONS = {
    "a case": Addition(
        {
            "grammars/added/case.toml": (
                ("", 'reason = "It is added."\n[[texts]]\ntext = "ab"\nstock = "accept"\n'),
            ),
            "grammars/added/grammar.lark": (("", 'start: "ab"\n'),),
        },
        command("check", "--case", "added", "--vocab", "llama-spm"),
        "added",
    ),
    "a variant": Addition(
        {
            f"{PACKAGE}/inputs/variant.py": (
                ("_ALL = (", 'Variant("added", "token_to_piece", "never", False, "never forces"),'),
            ),
        },
        command("run", "--case", "listed", "--variant", "added", "--rounds", "1", *ON_SPM),
        "added",
    ),
    "a metric": Addition(
        {
            f"{PACKAGE}/records/times.py": (
                ("Measure = Literal[", '"twice", '),
                ('("cold", "mask"), ', '("cold", "twice"), '),
                (
                    "    match measure:\n",
                    '        case "twice":\n            return [mask + mask for mask in masks]\n',
                ),
            ),
            "benchmarks/grid.py": (
                (
                    "class _Cell:\n",
                    "    def track_twice_p50(self, *_):\n"
                    '        return self.metrics.seconds("twice_p50")\n\n',
                ),
            ),
        },
        "from made_records import entry; from benchmarks.grid import Cases; "
        "from llgbench.asv import cells, metrics, suite; cases = Cases(); "
        "pooled = suite.pool([entry(mask=[[500] * 20])]); "
        "cases.metrics = cells.Metrics('x', pooled); "
        "print(cases.track_twice_p50()['samples'], metrics.declared('Cases', 'twice_p50').unit)",
        "[1e-06] seconds",
    ),
    "a kind of engine": Addition(
        {
            f"{PACKAGE}/engines/added.py": (
                (
                    "",
                    "from pathlib import Path\n\n"
                    "def library(spec):\n    return Path(spec.removeprefix('from:')).resolve()\n",
                ),
            ),
            f"{PACKAGE}/engines/registry.py": (
                ("from llgbench.engines import ", "added, "),
                (
                    "    if entry is None:\n",
                    "        if name.startswith('from:'):\n"
                    "            return added.library(name)\n",
                ),
            ),
        },
        "from llgbench.engines import registry; path = registry.wheel_path(); "
        + command("engine", "path", "from:{path}").replace("'from:{path}'", "f'from:{path}'"),
        "llguidance/_lib",
    ),
    "a table of the report": Addition(
        {
            f"{PACKAGE}/report/tables.py": (
                (
                    "        _case_table(view, figures),\n",
                    '        Table("added", "An added table", ("cases",),\n'
                    "              ((str(len(record.entries)),),), ()),\n",
                ),
            ),
            f"{PACKAGE}/report/document.py": (
                (
                    '    for table in found.get("checkpoints", []):\n'
                    "        lines += _open(table)\n",
                    '    for table in found.get("added", []):\n        lines += _open(table)\n',
                ),
            ),
        },
        "from pathlib import Path; from made_records import entry, record; "
        "from llgbench.report import document; "
        "print(document.markdown([record(Path('.'), entry())]))",
        "**An added table**",
    ),
    "a decode mode": Addition(
        {
            f"{PACKAGE}/decode/modes.py": (
                (
                    "    for mode in (\n",
                    '        Mode("added", "validate", "both", forced=True),\n',
                ),
            ),
        },
        command("decode", "--case", "listed", "--mode", "added", "--rounds", "1", *ON_SPM),
        "added",
    ),
}


def named_in(row: str) -> list[str]:
    """Return the files that a row of the table names, from the checkout's root."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    found = re.search(rf"^\| {row} \| (.*?) \|", text, re.M)
    assert found is not None, row
    names = re.findall(r"`([\w./]+/[\w.]*)`", found[1])
    return [name if (ROOT / name.split("/")[0]).is_dir() else f"{PACKAGE}/{name}" for name in names]


def test_the_table_has_these_rows() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## To add")[2]
    assert re.findall(r"^\| (an? [\w ]+) \|", text, re.M) == list(ADDITIONS)


@pytest.mark.usefixtures("_vocabs_here")
@pytest.mark.parametrize("what", ADDITIONS)
def test_an_addition_is_what_its_row_says(what: str, tmp_path: Path) -> None:
    addition = ADDITIONS[what]
    rows = [name.replace("NAME", "added") for name in named_in(what)]
    places = {next((row for row in rows if file.startswith(row)), "") for file in addition.edits}
    assert "" not in places, (rows, list(addition.edits))
    assert 1 <= len(rows) <= 3
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "benchmarks", "grammars"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for name in ("vocabs", "engine"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name, pieces in addition.edits.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        text = path.read_text() if path.exists() else ""
        for after, new in pieces:
            assert after in text, f"{name} has no longer {after!r}"
            text = text.replace(after, after + new, 1)
        path.write_text(text)
    searched = [tmp_path / "src", tmp_path, ROOT / "tests"]
    done = subprocess.run(
        [sys.executable, "-c", addition.run], capture_output=True, text=True, check=False,
        cwd=tmp_path,
        env={
            **os.environ, "LLGBENCH_ROOT": str(tmp_path),
            "PYTHONPATH": os.pathsep.join(map(str, searched)),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert addition.shows in done.stdout, done.stdout + done.stderr
