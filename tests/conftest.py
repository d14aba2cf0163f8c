"""Fixtures: real engines and real vocabularies, opened once a session.

``LLGBENCH_CACHE`` names a folder of this session. Of the user's cache it has the built engines:
they are keyed by all that went into them, and building them takes minutes. What cargo compiles on
the way to a test's own build stays there too.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

from llgbench import paths
from llgbench.engines import build as engine_build
from llgbench.engines import engine, peers, registry
from llgbench.engines.engine import Engine, Tokenizer
from llgbench.errors import LlgbenchError
from llgbench.inputs import catalogue, variant
from llgbench.inputs.variant import Variant
from llgbench.llama import bridge, vocab
from llgbench.llama.vocab import Vocab

ROOT = Path(__file__).resolve().parents[1]
CATALOGUE = catalogue.vocabs(ROOT)

# A slow machine is no finding.
settings.register_profile("llgbench", deadline=None, max_examples=60)
settings.load_profile("llgbench")

# How many inputs each test marked `fuzz` tries; `make fuzz` asks for 2000.
FUZZ = int(os.environ.get("LLGBENCH_FUZZ", "200"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu", type=int, default=0, metavar="N",
        help="List the N tests that need most CPU time, with that of the processes they start.",
    )  # fmt: skip


def _cpu_s() -> float:
    return sum(os.times()[:4])  # user and system time of this process and its ended children


class _Cpu:
    """CPU time of each phase of a test: unlike wall time, much the same on a loaded machine."""

    def __init__(self) -> None:
        self.before = _cpu_s()

    def pytest_collection_finish(self) -> None:
        self.before = _cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self,
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = _cpu_s()
        report.user_properties = [*report.user_properties, ("cpu_s", now - self.before)]
        self.before = now
        return report

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        spent: dict[str, float] = {}
        for reports in terminalreporter.stats.values():
            for report in reports:
                for name, value in getattr(report, "user_properties", ()):
                    if name == "cpu_s":
                        spent[report.nodeid] = spent.get(report.nodeid, 0) + value
        terminalreporter.section(f"{sum(spent.values()):.0f} s of CPU time")
        for test in sorted(spent, key=lambda test: -spent[test])[: config.getoption("--cpu")]:
            terminalreporter.line(f"{spent[test]:7.1f} {test}")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what it puts in the background with SIGINT ignored; children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--cpu"):
        config.pluginmanager.register(_Cpu())


class Lab:
    """Vocabularies and tokenizers, opened at first use and kept for the session."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._vocabs: dict[str, Vocab] = {}
        self._tokenizers: dict[tuple[str, Variant], Tokenizer] = {}

    def vocab(self, name: str) -> Vocab:
        if name not in self._vocabs:
            self._vocabs[name] = vocab.open_vocab(name, ROOT)
        return self._vocabs[name]

    def tokenizer(self, name: str, of: str | Variant) -> Tokenizer:
        wanted = variant.get(of) if isinstance(of, str) else of
        key = (name, wanted)
        if key not in self._tokenizers:
            self._tokenizers[key] = bridge.build(self.engine, self.vocab(name), wanted)
        return self._tokenizers[key]

    def close(self) -> None:
        for tokenizer in self._tokenizers.values():
            tokenizer.close()
        for opened in self._vocabs.values():
            opened.close()


@pytest.fixture(scope="session", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLGBENCH_ROOT", str(ROOT))
        built = [path.parent for f in engine_build.FLAVOURS if (path := engine_build.cached(f))]
        shims = [
            path.parent
            for spec in peers.kept()
            for path in peers.locate(spec).paths
            if spec.kind in ("glrmask", "outlines")
        ]
        # Cargo's half-way results, kept between sessions: one build in ten seconds, not sixty.
        target = paths.cache() / "cargo" / "target-of-tests"
        folder = tmp_path_factory.mktemp("cache")
        (folder / "cargo").mkdir()
        with suppress(OSError):  # a cache that cannot be written: then the longer build
            target.mkdir(parents=True, exist_ok=True)
            (folder / "cargo" / "target").symlink_to(target)
        (folder / "engines").mkdir()
        for path in built:
            (folder / "engines" / path.name).symlink_to(path)
        (folder / "peers").mkdir()
        for path in shims:
            (folder / "peers" / path.name).symlink_to(path)
        patch.setenv("LLGBENCH_CACHE", str(folder))
        yield


@pytest.fixture(scope="session")
def _vocabs_here(_surroundings: None) -> None:
    try:
        catalogue.fetch(lambda _: None, ROOT)
    except LlgbenchError as error:
        pytest.skip(f"the vocabularies are not here and cannot be fetched: {error}")


@pytest.fixture(scope="session")
def wheel(_surroundings: None) -> Engine:
    return registry.get("wheel")


@pytest.fixture(scope="session")
def byte_tokenizer(wheel: Engine) -> Iterator[Tokenizer]:
    with engine.byte_tokenizer(wheel) as tokenizer:
        yield tokenizer


@pytest.fixture(scope="session")
def lab(wheel: Engine, _vocabs_here: None) -> Iterator[Lab]:
    found = Lab(wheel)
    yield found
    found.close()


@pytest.fixture(scope="session", params=list(CATALOGUE))
def every_vocab(request: pytest.FixtureRequest, _vocabs_here: None) -> Iterator[Vocab]:
    """Each vocabulary of the catalogue in turn; one at a time is open."""
    with vocab.open_vocab(request.param, ROOT) as opened:
        yield opened


@pytest.fixture(scope="session", params=["1.7.6", "1.9.0"])
def release(request: pytest.FixtureRequest, _surroundings: None) -> Engine:
    """Other releases of llguidance; each is brought once a session."""
    try:
        return registry.get(f"pypi:{request.param}")
    except LlgbenchError as error:
        pytest.skip(f"llguidance {request.param} cannot be fetched: {error}")


@pytest.fixture(scope="session")
def old_release(_surroundings: None) -> Engine:
    """Return one other release, for what is no question of which."""
    try:
        return registry.get("pypi:1.9.0")
    except LlgbenchError as error:
        pytest.skip(f"llguidance 1.9.0 cannot be fetched: {error}")


@pytest.fixture(scope="session")
def xgrammar(_surroundings: None) -> str:
    """Return xgrammar's specification, once it is here; it is brought once a session."""
    spec = peers.PeerSpec("xgrammar", "0.2.9")
    try:
        peers.bring(spec, lambda _: None)
    except LlgbenchError as error:
        pytest.skip(f"{spec} cannot be brought: {error}")
    return str(spec)


@pytest.fixture(scope="session", params=["outlines:0.2.14", "glrmask:0.5.0"])
def crate(request: pytest.FixtureRequest, _surroundings: None) -> str:
    """Return an engine that is built with a shim, where the user has built it: it takes minutes."""
    spec = peers.parse(request.param)
    assert spec is not None
    try:
        peers.locate(spec)
    except LlgbenchError as error:
        pytest.skip(str(error))
    return str(spec)


@pytest.fixture(scope="session")
def maskbench() -> Path:
    """A folder of MaskBench files; they are not part of this repository."""
    folder = Path(
        os.environ.get("LLGBENCH_MASKBENCH") or ROOT.parent / "shared" / "data" / "maskbench"
    )
    if not folder.is_dir():
        pytest.skip(f"no MaskBench files at {folder}; LLGBENCH_MASKBENCH names another folder")
    return folder
