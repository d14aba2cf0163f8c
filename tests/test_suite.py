"""The values ASV gets, and every benchmark and parameter run once as ASV would run it."""

from __future__ import annotations

import importlib
import inspect
import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from made_records import entry

from llgbench import paths
from llgbench.asv import decode_suite, suite
from llgbench.inputs.configuration import Configuration
from llgbench.measure import recording
from llgbench.measure.rounds import Rounds

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(p.stem for p in (ROOT / "benchmarks").glob("*.py") if p.stem != "__init__")


@pytest.fixture(scope="module", autouse=True)
def _importable() -> Iterator[None]:
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> suite.Values:
    """Return the whole quick grid, measured once with the fewest rounds."""
    quick = recording.QUICK
    try:
        recording.QUICK = Rounds(cold=1, warm=1, cached=1, sibling=1)
        return suite.measure(tmp_path_factory.mktemp("results"))
    finally:
        recording.QUICK = quick


@pytest.fixture(scope="module")
def decoded(tmp_path_factory: pytest.TempPathFactory) -> suite.Values:
    """Return the decode benchmarks' values on one vocab, of one round."""
    return decode_suite.measure(tmp_path_factory.mktemp("decoded"), ("llama-spm",), rounds=1)


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


_caches: dict[str, Any] = {}


# What a module's setup_cache would take minutes for stands in a fixture.
FIXTURES = {"benchmarks.grid": "found", "benchmarks.decode": "decoded"}


def _cache(module: ModuleType, request: pytest.FixtureRequest) -> Any:
    if module.__name__ in FIXTURES:
        return request.getfixturevalue(FIXTURES[module.__name__])
    if module.__name__ not in _caches:
        _caches[module.__name__] = module.setup_cache()
    return _caches[module.__name__]


@pytest.mark.parametrize(("module", "owner", "method"), _benchmarks())
def test_every_benchmark_and_parameter_runs(
    module: str, owner: str, method: str, request: pytest.FixtureRequest
) -> None:
    loaded = importlib.import_module(f"benchmarks.{module}")
    subject: Any = getattr(loaded, owner)
    assert getattr(subject, "version", None), "without a version ASV hashes the method alone"
    cache = (_cache(loaded, request),) if hasattr(loaded, "setup_cache") else ()
    ran = 0
    reasons = []
    for parameters in itertools.product(*getattr(subject, "params", ())):
        assert all(isinstance(p, str) for p in parameters), "ASV keys results by repr"
        instance = subject()
        try:
            if hasattr(instance, "setup"):
                instance.setup(*cache, *parameters)
        except NotImplementedError as error:
            reasons.append(str(error))
            continue  # n/a, its reason on screen
        value = getattr(instance, method)(*cache, *parameters)
        if hasattr(instance, "teardown"):
            instance.teardown(*parameters)
        ran += 1
        if isinstance(value, dict):
            assert value["samples"]
            assert all(math.isfinite(x) and x >= 0 for x in value["samples"])
        elif value is not None:
            assert value >= 0 or math.isnan(value)
    if not ran and all(reason.startswith("counting") for reason in reasons):
        pytest.skip(reasons[0])
    assert ran, "not one parameter runs here"


def test_what_is_wrong_is_not_pooled(found: suite.Values) -> None:
    wrong = found["json | llama-spm | baseline"]
    assert isinstance(wrong, str)
    assert "wrong" in wrong
    right = found["json | llama-spm | greedy_tokenize"]
    assert isinstance(right, dict)
    assert right["right_cases"] == 4


def test_what_is_not_judged_is_not_counted() -> None:
    empty = entry(case="json-nested", label="not judged", reason="it has no texts")
    given = entry(case="json-tool-call", label="refused", reason="x")
    numbers = {"wrong_tokens": 0, "tokenizer_build_ns": 1, "token_table_ns": 1}
    refused = replace(
        given,
        verdict={**given.verdict, "forbidden": 0, "accepted": 0},
        facts={**given.facts, **numbers},
    )
    values = suite.values([empty, refused])
    assert values[str(empty.configuration)] == "not judged: it has no texts"
    pooled = values["json | llama-bpe | baseline"]
    assert isinstance(pooled, dict)
    assert pooled["right_cases"] == 1


def test_the_figures_are_tracked(found: suite.Values) -> None:
    metrics = found["json-nested | llama-spm | baseline"]
    assert isinstance(metrics, dict)
    assert metrics["wrong_tokens"] == 16410
    assert metrics["forbidden"] != 0
    exact = found["json-nested | llama-spm | greedy_tokenize"]
    assert isinstance(exact, dict)
    assert (exact["wrong_tokens"], exact["forbidden"]) == (0, 0)


def test_a_percentile_the_sample_cannot_carry_is_no_number(found: suite.Values) -> None:
    value = suite.look_up(found, "listed | llama-bpe | baseline", "cold_mask_p99_9")
    assert isinstance(value, float)
    assert math.isnan(value)


def test_an_unavailable_configuration_raises_its_reason() -> None:
    values: suite.Values = {"x": "no engine"}
    with pytest.raises(NotImplementedError, match="no engine"):
        suite.look_up(values, "x", "compile")
    with pytest.raises(NotImplementedError, match="no engine"):
        suite.require(values, "x")


def test_parameters_are_configurations() -> None:
    for text in (*suite.configurations(), *suite.pooled_configurations()):
        assert str(Configuration.parse(text)) == text
    assert set(suite.checkpoint_configurations()) <= set(suite.configurations())


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
