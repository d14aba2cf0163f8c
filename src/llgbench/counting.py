"""Comparisons in instructions: the replay under callgrind, for machines too noisy for a clock.

A process counts one replay of one text a case by both sides, call by call. What differs between
processes is the hash seeds, which both sides of a process share; so a few processes are enough.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from llgbench import paths, workers
from llgbench._native import lib
from llgbench.compare_worker import Job
from llgbench.comparison import Comparison, Measured, Plan, table
from llgbench.errors import CompareError, UnavailableError
from llgbench.sides import SIDES, Side

# Processes, each with seeds of its own, which move a count by some tenths of a percent.
SEEDS = 5

_SEED_SOURCE = Path(__file__).parent / "csrc" / "seed.c"
_TRIGGER = re.compile(r"^desc: Trigger: Client Request: (.+)$", re.MULTILINE)
_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)

# {"compile": one a replay, "mask": one a step of each replay in turn, "consume": the same}.
Counts = dict[str, list[int]]


def missing() -> str | None:
    """Return why instructions cannot be counted here; None where they can."""
    if shutil.which("valgrind") is None:
        return "counting takes valgrind, which is not installed (apt-get install valgrind)"
    if not lib.lb_count_built():
        return (
            "counting takes valgrind's header when llgbench is built; install valgrind with its "
            "header and run: pip install --force-reinstall --no-deps -e ."
        )
    return None


def count(
    base: Side, head: Side, plan: Plan, progress: Callable[[str], None] = lambda _: None
) -> Comparison:
    """Compare two sides in instructions.

    Raises:
        UnavailableError: there is no valgrind.
        CompareError: a process under valgrind fails.
    """
    why = missing()
    if why is not None:
        raise UnavailableError(why)
    started = time.monotonic()
    found = Comparison(base, head, plan)
    pairs: Measured = {}
    for vocab in plan.vocabs:
        ask = Job(0, base, head, vocab, plan.variant, plan.cases, 0, plan.unequal, "verify")
        verified = workers.spawn(ask)
        found.steps += sum(c["steps"] for c in verified["cases"].values())
        found.differences += [{**d, "vocab": vocab} for d in verified["differences"]]
        if not verified["cases"] or (found.differences and not plan.unequal):
            found.ended = "masks differ"
            return found
        found.counters += [{**c, "vocab": vocab} for c in verified["counters"]]
        cases = tuple(verified["cases"])
        progress(f"counting on {vocab}: {SEEDS} processes under callgrind")
        jobs = [
            Job(seed, base, head, vocab, plan.variant, cases, 0, plan.unequal, "count")
            for seed in range(SEEDS)
        ]
        # Counts do not mind company: as many at once as there are cores.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            done = list(pool.map(_spawn, jobs))
        for _, counts in done:
            for case in cases:
                metrics = [count_metrics(counts[case, side]) for side in SIDES]
                for metric, value in metrics[0].items():
                    pair = value, metrics[1][metric]
                    pairs.setdefault((case, vocab, metric), []).append(pair)
    # Nothing is looked at before the end, so the whole rate may be spent.
    found.rows = table(pairs, plan, plan.rate, np.random.default_rng(plan.seed), "instructions")
    found.wall_s = time.monotonic() - started
    found.ended = f"{SEEDS} processes counted"
    return found


def count_metrics(counts: Counts) -> dict[str, float]:
    """Return the metrics of one process and side, in instructions.

    Every step is counted exactly, so that percentiles are those of these very steps and need no
    samples above them.
    """
    rounds = len(counts["compile"])
    mask = np.array(counts["mask"], float).reshape(rounds, -1)
    consume = np.array(counts["consume"], float).reshape(rounds, -1)
    tbm = mask[:, : consume.shape[1]] + consume
    return {
        "TBM mean": float(tbm.mean()),
        "TBM p50": float(np.percentile(tbm, 50)),
        "TBM p99": float(np.percentile(tbm, 99)),
        "TBM max": float(np.median(tbm.max(axis=1))),
        "TTFM": float(np.mean(np.array(counts["compile"]) + mask[:, 0])),
        "consume": float(np.median(consume)),
    }


def _spawn(job: Job) -> tuple[dict[str, Any], dict[tuple[str, str], Counts]]:
    """Run a worker under callgrind; return its result, and the counts by case and side."""
    with tempfile.TemporaryDirectory(prefix="llgbench-") as place:
        folder = Path(place)
        ask, answer = folder / "job.json", folder / "result.json"
        job.write(ask)
        environment = {**os.environ, "PYTHONHASHSEED": "0", "LLGBENCH_SEED": str(job.number)}
        preload = _seed_library()
        if preload is not None:
            environment["LD_PRELOAD"] = str(preload)
        done = subprocess.run(
            [
                "valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no",
                "--dump-line=no", f"--callgrind-out-file={folder / 'counts'}",
                sys.executable, "-m", "llgbench.compare_worker", str(ask), str(answer),
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
            env=environment,
        )  # fmt: skip
        if not answer.is_file():
            said = [s for s in done.stderr.splitlines() if s.strip() and not s.startswith("==")]
            raise CompareError(
                f"the worker under valgrind gives no result: "
                f"{said[-1] if said else f'status {done.returncode}'}"
            )
        result: dict[str, Any] = json.loads(answer.read_text())
        return result, _dumps(folder, result)


def _dumps(folder: Path, result: Mapping[str, Any]) -> dict[tuple[str, str], Counts]:
    """Read callgrind's dumps, in the order they were made, into counts by case and side."""
    by_label = {case["label"]: name for name, case in result["cases"].items()}
    found: dict[tuple[str, str], Counts] = {}
    files = [p for p in folder.glob("counts.*") if p.suffix[1:].isdigit()]
    for path in sorted(files, key=lambda p: int(p.suffix[1:])):
        text = path.read_text()
        trigger, totals = _TRIGGER.search(text), _TOTALS.search(text)
        if trigger is None or totals is None:
            continue  # the dump at the end of the process
        label, side, what = trigger[1].split()
        counts = found.setdefault((by_label[label], side), {})
        counts.setdefault(what, []).append(int(totals[1]))
    return found


def _seed_library() -> Path | None:
    """Return the library that fixes the hash seeds; None where there is no C compiler.

    Without it the counts are as right and a little less alike.
    """
    digest = hashlib.sha256(_SEED_SOURCE.read_bytes()).hexdigest()[:12]
    library = paths.cache() / "seed" / f"seed-{digest}.so"
    if library.is_file():
        return library
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library.parent.mkdir(parents=True, exist_ok=True)
    part = library.with_suffix(".part")
    built = subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-o", str(part), str(_SEED_SOURCE)],
        capture_output=True, check=False,
    )  # fmt: skip
    if built.returncode != 0:
        return None
    part.replace(library)
    return library
