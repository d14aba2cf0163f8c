"""Whether measuring in a worker process changes what is measured.

``python tools/isolation.py clock`` measures a group in this process and by the supervisor, in turn,
and prints the ratio of the medians with its spread. ``count`` runs both under callgrind and prints
the instructions inside the replay, which do not depend on the machine's load.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from llgbench import processes
from llgbench.inputs import case_file
from llgbench.inputs.configuration import Configuration
from llgbench.measure import supervisor
from llgbench.measure.messages import Group, Setup, Stage, encode
from llgbench.measure.replay import with_end
from llgbench.measure.rounds import Rounds, Samples, Subject, measure
from llgbench.measure.runner import Tally, Workbench, prepare, traces_of
from llgbench.records.stats import pool

VARIANTS = ("token_to_piece", "greedy_tokenize")
ROUNDS = Rounds(cold=2, warm=4, cached=1)
TIMES = ("cold_mask", "cold_consume", "warm_mask", "warm_consume", "cached_mask")


def group(name: str, vocab: str) -> list[Configuration]:
    """Return the configurations that are measured together."""
    return [Configuration(name, vocab, variant) for variant in VARIANTS]


def here(name: str, vocab: str, rounds: Rounds) -> dict[str, Samples]:
    """Measure the group in this process."""
    subject = case_file.load(name)
    with Workbench(vocab) as bench:
        ready = [prepare(c, subject, bench) for c in group(name, vocab)]
        traces = [with_end(t, ready[0].tokenizer) for t in traces_of(subject, bench.vocab)]
        subjects = {r.variant.name: Subject(r.tokenizer, r.grammar) for r in ready}
        return measure(subjects, traces, rounds)


@click.group()
def main() -> None:
    """Compare a measurement in this process with one in a worker."""


@main.command()
@click.option("--case", "name", default="github-workflow")
@click.option("--vocab", default="llama-bpe")
@click.option("--pairs", default=10)
def clock(name: str, vocab: str, pairs: int) -> None:
    """Measure by the clock, in turn."""
    ratios: dict[str, list[float]] = {}
    for number in range(pairs):
        medians: list[dict[tuple[str, str], float]] = [{}, {}]
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            for variant, of in (_here if which == 0 else _there)(name, vocab).items():
                for what in TIMES:
                    medians[which][variant, what] = float(np.median(pool(of[what])))
        for key, value in medians[0].items():
            ratios.setdefault(key[1], []).append(medians[1][key] / value)
    print(f"{'':14} {'median':>7} {'p25':>7} {'p75':>7}   supervisor / this process")
    for what, found in ratios.items():
        p25, p50, p75 = np.percentile(found, [25, 50, 75])
        print(f"{what:14} {p50:7.3f} {p25:7.3f} {p75:7.3f}")


def _here(name: str, vocab: str) -> dict[str, dict[str, Sequence[np.ndarray]]]:
    # A process of its own, as the worker has one: a fresh heap, no vocab opened before.
    code = (
        "import pickle, sys; sys.path.insert(0, sys.argv[1]); import isolation\n"
        "found = isolation.here(sys.argv[2], sys.argv[3], isolation.ROUNDS)\n"
        "pickle.dump({v: {t: getattr(s, t + '_ns') for t in isolation.TIMES}\n"
        "             for v, s in found.items()}, sys.stdout.buffer)"
    )
    import pickle

    folder = str(Path(__file__).parent)
    done = processes.run([sys.executable, "-c", code, folder, name, vocab])
    if not done.ok:
        raise SystemExit(done.words)
    found: dict[str, dict[str, Sequence[np.ndarray]]] = pickle.loads(done.stdout)
    return found


def _there(name: str, vocab: str) -> dict[str, dict[str, Sequence[np.ndarray]]]:
    entries = supervisor.run(group(name, vocab), ROUNDS, Tally())
    return {e.configuration.variant: {t: e.samples[t] for t in TIMES} for e in entries}


@main.command()
@click.option("--case", "name", default="json-tool-call")
@click.option("--vocab", default="llama-spm")
def count(name: str, vocab: str) -> None:
    """Count the instructions inside lb_replay, both ways, under callgrind."""
    folder = Path(__file__).parent
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import isolation\n"
        "isolation.here(sys.argv[2], sys.argv[3], isolation.ROUNDS)"
    )
    one = _instructions([sys.executable, "-c", code, str(folder), name, vocab], b"")
    with tempfile.TemporaryDirectory() as place:
        stage = Path(place) / "stage"
        Stage.create(stage).close()
        asked = encode(Setup(vocab, str(stage), 1 << 20)) + encode(
            Group(case_file.load(name), group(name, vocab), ROUNDS, [], [])
        )
        worker = [*processes.python("llgbench.measure.worker"), str(os.getpid())]
        other = _instructions(worker, asked)
    print(f"this process {one:,}, worker {other:,}, ratio {other / one:.4f}")


def _instructions(command: list[str], stdin: bytes) -> int:
    """Run a command under callgrind, with hash seeds and an allocator that are always the same."""
    csrc = Path(__file__).parents[1] / "src/llgbench/csrc"
    with tempfile.TemporaryDirectory() as folder:
        out, alike = Path(folder) / "counts", Path(folder) / "alike.so"
        how: list[str | Path] = ["cc", "-O2", "-fno-builtin", "-shared", "-fPIC", "-o", alike]
        subprocess.run([*how, csrc / "seed.c", csrc / "steady.c"], check=True)
        valgrind = [
            "valgrind", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=lb_replay",
            f"--callgrind-out-file={out}",
        ]  # fmt: skip
        environment = {
            **os.environ, "PYTHONHASHSEED": "0", "LD_PRELOAD": str(alike), "LLGBENCH_SEED": "1"
        }  # fmt: skip
        done = subprocess.run(
            [*valgrind, *command], input=stdin, capture_output=True, env=environment, check=False
        )
        totals = re.search(r"^totals: (\d+)$", out.read_text(), re.MULTILINE)
        if done.returncode != 0 or totals is None:
            raise SystemExit(done.stderr.decode(errors="replace"))
        return int(totals[1])


if __name__ == "__main__":
    main()
