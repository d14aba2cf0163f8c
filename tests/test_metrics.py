"""What is declared of metrics, and that every benchmark has it from there."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from llgbench.asv import metrics
from llgbench.asv.metrics import Metric

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(p.stem for p in (ROOT / "benchmarks").glob("*.py") if p.stem != "__init__")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def tracked(module: str) -> Iterator[tuple[str, str]]:
    """Yield every tracked benchmark of a module, as ASV names it, with the unit ASV sees."""
    loaded = importlib.import_module(f"benchmarks.{module}")
    for name, owner in vars(loaded).items():
        if inspect.isclass(owner) and not name.startswith("_"):
            for method in dir(owner):
                if method.startswith("track_"):
                    unit = getattr(getattr(owner, method), "unit", getattr(owner, "unit", "unit"))
                    yield f"{module}.{name}.{method}", unit


@pytest.mark.parametrize("module", MODULES)
def test_every_benchmark_is_declared_and_has_its_unit_from_there(module: str) -> None:
    listed = list(tracked(module))
    assert listed
    for benchmark, unit in listed:
        _, owner, method = benchmark.split(".")
        declared = metrics.declared(owner, method.removeprefix("track_"))
        assert declared is not None, benchmark
        assert (benchmark, unit) == (benchmark, declared.unit)
        assert metrics.of(benchmark, unit) == declared


@pytest.mark.parametrize(
    ("benchmark", "unit", "kind", "better"),
    [
        ("grid.Verdicts.track_forbidden", "count", "fact", "less"),
        ("grid.Verdicts.track_accepted", "count", "fact", "more"),
        ("masks.Sameness.track_masks", "yes", "fact", "more"),
        ("tokenizer.TokenBytes.track_wrong_tokens", "tokens", "fact", "less"),
        ("decode.Decode.track_tokens_per_second", "tokens/s", "time", "more"),
        ("decode.Decode.track_mask", "ns", "time", "less"),
        ("masks.Ratios.track_ttfm", "ratio", "ratio", "less"),
        ("masks.Masks.track_ttfm", "ns", "time", "less"),
        # of other suites
        ("bench.time_read", "seconds", "time", "less"),
        ("bench.Suite.track_throughput", "MB/s", "time", "more"),
        ("bench.Suite.peakmem_all", "bytes", "time", "less"),
        ("bench.Masks.track_p50", "ratio", "ratio", "less"),
    ],
)
def test_kind_and_direction(benchmark: str, unit: str, kind: str, better: str) -> None:
    metric = metrics.of(benchmark, unit)
    assert (metric.kind, metric.better) == (kind, better)


def test_a_unit_that_asv_made_up_is_none() -> None:
    """What an older package's benchmarks were listed with."""
    assert metrics.of("grid.Cases.track_ttfm", "unit") == metrics.NS


def test_a_cost_rises_where_it_becomes_worse() -> None:
    assert Metric("ns", "time").cost(3.0) == 3.0
    assert Metric("tokens/s", "time", "more").cost(3.0) == -3.0
