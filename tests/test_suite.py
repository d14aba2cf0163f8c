"""The values ASV gets, and every benchmark and parameter run once as ASV would run it."""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import CATALOGUE
from made_records import entry

from llgbench import paths
from llgbench.asv import batch_suite, decode_suite, fallback_suite, peers_suite, suite
from llgbench.asv.cells import Metrics, Run, row
from llgbench.decode.modes import MODES
from llgbench.engines import peers
from llgbench.engines.spec import WHEEL
from llgbench.fallback.pending import STATES
from llgbench.fallback.states import STRATEGIES
from llgbench.inputs import case_file
from llgbench.inputs.configuration import Configuration, grid
from llgbench.inputs.variant import VARIANTS
from llgbench.measure import recording
from llgbench.measure.rounds import Rounds
from llgbench.records.record import read

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(p.stem for p in (ROOT / "benchmarks").glob("*.py") if p.stem != "__init__")


@pytest.fixture(scope="module", autouse=True)
def _importable() -> Iterator[None]:
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


one_round = partial(decode_suite.request, rounds=1)
# The least and the largest of the JSON cases stand for all that are pooled.
POOLED = (suite.JSON_CASES[0], suite.JSON_CASES[-1])
# Their tokenizers take longer to build than all else takes that is run here.
LARGE = ("llama-bpe", "gemma-4")
SMALL = "llama-spm"


def _ends(axes: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return the first and the last value of each axis: what lies between takes the same way.

    An axis of large vocabularies alone is measured on a small one instead.
    """
    kept = [[value for value in axis if value not in LARGE] or [SMALL] for axis in axes]
    return list(dict.fromkeys(tuple(axis[end] for axis in kept) for end in (0, -1)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return a run of ASV's in which everything is measured with the fewest rounds."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "QUICK", Rounds(cold=1, warm=1, cached=1, sibling=1))
        modes = partial(decode_suite.modes_request, rounds=1)
        patch.setattr(decode_suite, "modes_request", lambda _: modes())
        patch.setattr(decode_suite, "request", lambda vocab, _: one_round(vocab))
        patch.setattr(batch_suite, "request", partial(batch_suite.request, steps=50))
        patch.setattr(suite, "QUICK_JSON_CASES", POOLED)
        for module, name in (
            (suite, "_HARNESS_VOCAB"), (decode_suite, "_MODES_VOCAB"), (batch_suite, "VOCAB"),
            (fallback_suite, "VOCAB"),
        ):  # fmt: skip
            patch.setattr(module, name, "llama-spm")
        small = partial(peers_suite.plan, vocab="llama-spm", rounds=1)
        patch.setattr(peers_suite, "plan", small)
        yield Run(str(folder), "feed", str(folder / "results"))


def _benchmarks() -> list[tuple[str, str, str]]:
    sys.path.insert(0, str(ROOT))
    try:
        return [
            (module, name, method)
            for module in MODULES
            for name, owner in vars(importlib.import_module(f"benchmarks.{module}")).items()
            if inspect.isclass(owner) and not name.startswith("_")
            for method in dir(owner)
            if method.startswith(("track_", "time_", "peakmem_"))
        ]
    finally:
        sys.path.remove(str(ROOT))


@pytest.mark.parametrize(("module", "owner", "method"), _benchmarks())
def test_every_benchmark_runs(module: str, owner: str, method: str, run: Run) -> None:
    loaded = importlib.import_module(f"benchmarks.{module}")
    subject: Any = getattr(loaded, owner)
    assert getattr(subject, "version", None), "without a version ASV hashes the method alone"
    cache = (run,) if hasattr(loaded, "setup_cache") else ()
    ran = 0
    reasons = []
    for parameters in _ends(getattr(subject, "params", ())):
        instance = subject()
        try:
            if hasattr(instance, "setup"):
                instance.setup(*cache, *parameters)
        except NotImplementedError as error:
            reasons.append(str(error))
            continue  # n/a, its reason on screen
        value = getattr(instance, method)(*cache, *parameters)
        if hasattr(instance, "teardown"):
            instance.teardown(*cache, *parameters)
        ran += 1
        if isinstance(value, dict):
            assert value["samples"]
            assert all(math.isfinite(x) and x >= 0 for x in value["samples"])
        elif value is not None:
            assert value >= 0 or math.isnan(value)
    if not ran and all(reason.startswith("counting") for reason in reasons):
        pytest.skip(reasons[0])
    assert ran, "not one parameter runs here"


def test_every_parameter_is_the_name_of_something() -> None:
    known: dict[str, Collection[str]] = {
        "case": case_file.names(), "vocab": CATALOGUE, "variant": VARIANTS, "mode": MODES,
        "strategy": STRATEGIES, "state": [state.name for state in STATES],
        "allowed": decode_suite.ALLOWED, "engine": peers_suite.ENGINES,
    }  # fmt: skip
    assert all(spec == WHEEL or peers.parse(spec) for spec in peers_suite.ENGINES)
    axes = 0
    for module, owner in {(module, owner) for module, owner, _ in _benchmarks()}:
        subject = getattr(importlib.import_module(f"benchmarks.{module}"), owner)
        names, params = getattr(subject, "param_names", ()), getattr(subject, "params", ())
        for axis, values in zip(names, params, strict=True):
            axes += 1
            assert all(isinstance(value, str) for value in values), "ASV keys results by repr"
            for value in values:
                assert value in known[axis] if axis in known else int(value) > 0, (owner, value)
    assert axes > 20


def test_what_is_wrong_is_not_pooled(run: Run) -> None:
    with pytest.raises(NotImplementedError, match=r"json \| llama-spm \| baseline: wrong"):
        suite.pooled(run, "llama-spm", "baseline")
    assert suite.pooled(run, "llama-spm", "greedy_tokenize").get("right_cases") == len(POOLED)


def test_a_cell_costs_itself_and_is_measured_once(run: Run, tmp_path: Path) -> None:
    own = Run(str(tmp_path), "own", str(tmp_path / "results"))
    found = {v: suite.cell(own, "json-tool-call", "llama-spm", v) for v in suite.VARIANTS}
    (path,) = (tmp_path / "results" / "records").glob("*.jsonl")
    stored = read(path)
    assert [e.configuration for e in stored.entries] == [
        Configuration("json-tool-call", "llama-spm", variant) for variant in suite.VARIANTS
    ]
    assert not stored.complete
    again = suite.cell(own, "json-tool-call", "llama-spm", "baseline")
    assert again == found["baseline"]
    assert len(read(path).entries) == 4


def test_a_run_grows_one_record_and_ends_it_with_the_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [Configuration(f"json-{at}", "llama-bpe", "baseline") for at in range(2)]
    monkeypatch.setattr(suite, "grid", lambda *_: small)
    own = Run(str(tmp_path), "own", str(tmp_path))
    for at, ended in enumerate((False, True)):
        suite._store(own, [entry(case=f"json-{at}")])
        (path,) = (tmp_path / "records").glob("*.jsonl")
        assert (len(read(path).entries), read(path).complete) == (at + 1, ended)
    assert len(suite._stored(own)) == 2


def test_what_is_not_judged_is_not_counted() -> None:
    empty = entry(case="json-nested", label="not judged", reason="it has no texts")
    refused = entry(case="json-tool-call", label="refused", reason="x")
    assert suite.of_entry(empty) == "not judged: it has no texts"
    pooled = suite.pool([empty, refused])
    assert isinstance(pooled, dict)
    assert pooled["right_cases"] == 1


def test_the_figures_are_tracked(run: Run) -> None:
    wrong = suite.cell(run, "json-nested", "llama-spm", "baseline")
    assert wrong.get("wrong_tokens") == 16410
    assert wrong.get("forbidden") != 0
    exact = suite.cell(run, "json-nested", "llama-spm", "greedy_tokenize")
    assert (exact.get("wrong_tokens"), exact.get("forbidden")) == (0, 0)


def test_times_are_in_seconds_where_asv_scales_them(run: Run) -> None:
    metrics = suite.cell(run, "json-nested", "llama-spm", "greedy_tokenize")
    ns, seconds = metrics.get("mask_p50"), metrics.seconds("mask_p50")
    assert isinstance(ns, dict)
    assert isinstance(seconds, dict)
    assert seconds["samples"] == [sample / 1e9 for sample in ns["samples"]]
    assert 1e-7 < seconds["samples"][0] < 1


def test_a_percentile_the_sample_cannot_carry_is_no_number(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    value = suite.cell(run, "listed", SMALL, "baseline").seconds("mask_p99_9")
    assert isinstance(value, float)
    assert math.isnan(value)
    assert "does not carry mask_p99_9" in capsys.readouterr().err


def test_a_metric_of_another_name_is_an_error() -> None:
    metrics = Metrics("x", {"mask_p50": 1.0})
    with pytest.raises(KeyError, match="mask_p5"):
        metrics.seconds("mask_p5")


def test_what_has_no_value_says_why() -> None:
    with pytest.raises(NotImplementedError, match="x: no engine"):
        row({"x": "no engine"}, "x")
    with pytest.raises(NotImplementedError, match="y: it was not measured"):
        row({}, "y")


def test_the_axes_are_the_quick_grid() -> None:
    named = {(case, vocab) for case in suite.JSON_CASES for vocab in suite.VOCABS}
    lexer = [*suite.LEXER_CASES, *(f"checkpoint@{n}" for n in suite.LENGTHS)]
    named |= {(case, vocab) for case in lexer for vocab in suite.LEXER_VOCABS}
    listed = grid("quick", tuple(suite.VARIANTS), (), ())
    assert {(c.case, c.vocab) for c in listed} == named


def test_importing_the_benchmarks_is_cheap() -> None:
    """ASV's discovery imports every module: no vocab, engine or pandas may come along."""
    import subprocess

    code = (
        "import sys; sys.path.insert(0, '.'); "
        f"[__import__('benchmarks.' + m) for m in {MODULES!r}]; "
        "print([m for m in ('pandas', 'matplotlib', 'llama_cpp', 'llgbench._native') "
        "if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=paths.root(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
