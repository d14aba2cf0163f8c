"""Engines from a checkout: what cannot be had, what a build may see, whose library it is."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from in_process import llgbench

from llgbench.compare import sides
from llgbench.compare.messages import Job
from llgbench.compare.worker import run
from llgbench.engines import git_build, registry, store
from llgbench.engines.engine import Engine
from llgbench.errors import EngineError, InputError
from llgbench.records.record import read

RELEASE = "1.9.1"

needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="no cargo")


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org", *words],
        check=True,
    )


def commit(folder: Path) -> None:
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "--all", "--force", ".")
    git(folder, "commit", "-qm", "one")


def crate(folder: Path, *sources: str, build: str = "fn main() {}") -> Path:
    """Make a checkout that cargo builds in no time, with one revision for each source."""
    (folder / "parser" / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text('[workspace]\nmembers = ["parser"]\nresolver = "2"\n')
    (folder / "parser" / "Cargo.toml").write_text(
        '[package]\nname = "llguidance"\nversion = "0.8.15"\nedition = "2021"\n'
        '[lib]\ncrate-type = ["cdylib", "rlib"]\n'
    )
    (folder / "parser" / "build.rs").write_text(build)
    for source in sources:
        (folder / "parser" / "src" / "lib.rs").write_text(source)
        commit(folder)
    return folder


def returns(number: int) -> str:
    return f'#[no_mangle] pub extern "C" fn number() -> i32 {{ {number} }}\n'


def number_of(library: Path | str) -> int:
    return int(ctypes.CDLL(str(library)).number())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLGBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return crate(tmp_path / "repo", "this is no Rust\n")


def test_revisions_that_cannot_be_had(repository: Path) -> None:
    with pytest.raises(InputError, match="no revision 'v9'"):
        git_build.parse(f"git:{repository}@v9")
    for spec in ("git:nowhere", "git:", "git:@", "git:@main", "git:nowhere@"):
        with pytest.raises(InputError, match="write git:PATH@REV"):
            git_build.parse(spec)
    (repository.parent / "loop").symlink_to("loop")
    for path in (f"{repository.parent}/nothing", f"{repository.parent}/loop", "~nobody-of-it/x"):
        with pytest.raises(InputError, match="is not a git checkout: there is no such folder"):
            git_build.parse(f"git:{path}@HEAD")
    with pytest.raises(InputError, match=r"is not a git checkout .*not a git repository"):
        git_build.parse(f"git:{repository.parent}@HEAD")
    assert len(git_build.parse(f"git:{repository}@HEAD").commit) == 40


@pytest.mark.parametrize(
    "name",
    ["with@at@s", "with space", 'it\'s "quoted"', "a+fallback=off", "repo.git", "caf\udce9", "@"],
)
def test_a_checkout_may_have_any_name(repository: Path, name: str) -> None:
    place = repository.rename(repository.with_name(name))
    head = git_build.parse(f"git:{place}@HEAD")
    assert head.repository == place.resolve()
    # Revisions have an @ too: in the reflog, and as another word for HEAD.
    for revision in ("HEAD@{0}", "main@{0}", "@", "main"):
        found = git_build.parse(f"git:{place}@{revision}")
        assert (found.repository, found.name, found.commit) == (place, revision, head.commit)


def test_git_is_asked_about_the_checkout_alone(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook of another repository sets GIT_DIR; it names that one."""
    other = crate(tmp_path / "other", "another\n")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    found = git_build.parse(f"git:{repository}@HEAD").commit
    assert found != git_build.parse(f"git:{other}@HEAD").commit


def test_gits_own_words_and_remedy_are_shown(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout that another user owns, as in a container job."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(InputError, match=r"dubious ownership.*config --global --add safe\.dir"):
        git_build.parse(f"git:{repository}@HEAD")


@needs_cargo
def test_a_failed_build_shows_cargo_and_its_log(repository: Path, cache: Path) -> None:
    with pytest.raises(EngineError, match=r"could not compile.*the log is .*build\.log") as caught:
        git_build.build(git_build.parse(f"git:{repository}@HEAD"), lambda _: None)
    assert "error: expected one of" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(cache.glob("git/*/*.so*"))


def test_a_cache_that_cannot_be_written(
    repository: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("cargo") is None:
        pytest.skip("no cargo")
    cache.write_text("a file where the folder should be")
    monkeypatch.setenv("LLGBENCH_CACHE", str(cache / "cache"))
    with pytest.raises(InputError, match=r"cannot write .*LLGBENCH_CACHE names another cache"):
        git_build.build(git_build.parse(f"git:{repository}@HEAD"), lambda _: None)


# ---- whose library it is ----


@needs_cargo
def test_two_revisions_are_two_libraries(tmp_path: Path, cache: Path) -> None:
    """Also where both have equal times and are built into one folder, and in any order."""
    folder = crate(tmp_path / "repo", returns(1), returns(2), returns(1) + "// a comment\n")
    lines: list[str] = []
    first, second, third = (
        git_build.build(git_build.parse(f"git:{folder}@{name}"), lines.append)
        for name in ("HEAD~2", "HEAD~1", "HEAD")
    )
    assert [number_of(library) for library in (first, second, third)] == [1, 2, 1]
    # Equal code gives an equal library, so that a change of comments is seen to be none.
    assert first.read_bytes() == third.read_bytes()
    assert first != third
    assert len(lines) == 3
    assert all("runs the build scripts of that revision" in line for line in lines)
    # Again: nothing is built, and nothing is said.
    again = git_build.build(git_build.parse(f"git:{folder}@HEAD~1"), lines.append)
    assert (again, len(lines)) == (second, 3)
    assert registry.locate(f"git:{folder}@HEAD~1", lines.append) == second
    # What is lost is built again, from its own sources, though cargo compiled others since.
    first.unlink()
    git_build.build(git_build.parse(f"git:{folder}@HEAD~2"), lines.append)
    assert number_of(shutil.copy(first, tmp_path / "again.so")) == 1


@needs_cargo
@pytest.mark.usefixtures("_vocabs_here", "cache")
def test_a_revision_is_an_engine_of_run_as_of_compare(wheel: Engine, tmp_path: Path) -> None:
    # The crate has no function of its own: its library asks the wheel's for all.
    links = "".join(
        f'println!("cargo:rustc-cdylib-link-arg={argument}");'
        for argument in ("-Wl,--no-as-needed", wheel.path)
    )
    spec = f"git:{crate(tmp_path / 'repo', '', build=f'fn main() {{ {links} }}')}@HEAD"
    done = llgbench(
        "run", "--engine", spec, "--case", "listed", "--vocab", "llama-spm",
        "--variant", "greedy_tokenize", "--rounds", "1", "--results", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "records").glob("*.jsonl")
    (entry,) = read(path).entries
    assert (entry.configuration.engine, entry.verdict["label"]) == (spec, "limited")
    assert entry.engine["sha256"] == sides.resolve(spec, lambda _: None).sha256 != wheel.sha256


BUILD = """
import sys
from llgbench.engines import git_build
for revision in sys.argv[2:]:
    said = []
    library = git_build.build(git_build.parse(f"git:{sys.argv[1]}@{revision}"), said.append)
    print(library, *said, sep="|")
"""


@needs_cargo
def test_builds_at_once_wait_and_say_for_whom(tmp_path: Path, cache: Path) -> None:
    slow = "fn main() { std::thread::sleep(std::time::Duration::from_secs(1)); }"
    folder = crate(tmp_path / "repo", returns(1), returns(2), build=slow)
    orders = [("HEAD", "HEAD~1"), ("HEAD~1", "HEAD"), ("HEAD", "HEAD~1")]
    for _ in range(2):  # the second time with all objects there, and no library
        children = [
            subprocess.Popen(
                [sys.executable, "-c", BUILD, str(folder), *order],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for order in orders
        ]  # fmt: skip
        said: list[str] = []
        for child in children:
            out, err = child.communicate(timeout=120)
            assert child.returncode == 0, err
            said += out.splitlines()
        libraries = {line.split("|")[0] for line in said}
        lines = [line for entry in said for line in entry.split("|")[1:]]
        assert len(libraries) == 2
        assert sum(line.startswith("building llguidance") for line in lines) == 2
        assert any(
            line.startswith("waiting for process ") and "which builds llguidance HEAD" in line
            for line in lines
        )
        copies = [Path(shutil.copy(path, tmp_path / f"{i}.so")) for i, path in enumerate(libraries)]
        assert sorted(number_of(copy) for copy in copies) == [1, 2]
        for path in libraries:
            Path(path).unlink()
        for copy in copies:
            copy.unlink()


@needs_cargo
def test_a_build_sees_no_secret_and_no_flag(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen.txt"
    record = (
        "fn main() { let all: Vec<String> = std::env::vars_os()"
        '.map(|(k, v)| format!("{}={}", k.to_string_lossy(), v.to_string_lossy())).collect();'
        f' std::fs::write({json.dumps(str(seen))}, all.join("\\n")).unwrap(); }}'
    )
    folder = crate(tmp_path / "repo", returns(1), build=record)
    planted = (
        "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "CARGO_REGISTRY_TOKEN", "SSH_AUTH_SOCK",
        "CARGO_REGISTRIES_MINE_TOKEN", "ANYTHING_ELSE", "CARGO_HTTP_TOKEN", "PIP_INDEX_URL",
    )  # fmt: skip
    for name in planted:
        monkeypatch.setenv(name, "do-not-tell")
    for name in ("RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"):
        monkeypatch.setenv(name, "--no-such-flag")
    monkeypatch.setenv("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
    lines: list[str] = []
    library = git_build.build(git_build.parse(f"git:{folder}@HEAD"), lines.append)
    variables = dict(line.partition("=")[::2] for line in seen.read_text().splitlines())
    assert "do-not-tell" not in variables.values()
    assert not set(planted) & set(variables)
    assert {"PATH", "OUT_DIR"} <= set(variables)
    assert variables["OPT_LEVEL"] == "3"
    # The flags are not used, which is said, and so they do not make another library.
    assert {line.split(" ")[0] for line in lines[1:]} == {
        "CARGO_BUILD_RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_PROFILE_RELEASE_OPT_LEVEL",
        "RUSTFLAGS",
    }  # fmt: skip
    monkeypatch.delenv("CARGO_PROFILE_RELEASE_OPT_LEVEL")
    assert git_build.build(git_build.parse(f"git:{folder}@HEAD"), lines.append) == library
    assert store.release_of(library) == "0.8.15"


@needs_cargo
def test_an_altered_library_is_refused(tmp_path: Path, cache: Path) -> None:
    folder = crate(tmp_path / "repo", returns(1))
    revision = git_build.parse(f"git:{folder}@HEAD")
    library = git_build.build(revision, lambda _: None)
    with library.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(EngineError, match=r"was altered since it was kept .*remove .* made anew"):
        git_build.build(revision, lambda _: None)
    shutil.rmtree(library.parent)
    assert git_build.build(revision, lambda _: None) == library


# ---- a real one ----


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository of llguidance's published crate, as cargo has it; it fetches nothing."""
    if shutil.which("cargo") is None:
        pytest.skip("no cargo")
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    published = next(home.glob(f"registry/src/*/llguidance-{RELEASE}"), None)
    if published is None:
        pytest.skip(f"llguidance {RELEASE} is not in cargo's cache")
    folder = tmp_path / "llguidance"
    shutil.copytree(published, folder, ignore=shutil.ignore_patterns(".cargo*"))
    # What is asked is whether it can be built, not how fast it runs.
    with (folder / "Cargo.toml").open("a") as manifest:
        manifest.write("\n[profile.release]\nopt-level = 0\n")
    commit(folder)
    return folder


@pytest.mark.usefixtures("_vocabs_here")
def test_a_revision_is_built_and_allows_what_its_release_allows(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    lines: list[str] = []
    try:
        built = sides.resolve(f"git:{checkout}@main", lines.append)
    except EngineError as error:
        if "offline" in str(error):
            pytest.skip(f"cargo's cache lacks a dependency: {error}")
        raise
    assert len(lines) == 1
    assert f"building llguidance main ({built.commit and built.commit[:10]})" in lines[0]
    assert built.commit == git_build.parse(f"git:{checkout}@HEAD").commit
    assert built.release == RELEASE
    wheel = sides.resolve("wheel", lines.append)
    assert built.sha256 != wheel.sha256
    cases = ("listed", "json-enum")
    done = run(
        Job(
            base=wheel, head=built, vocab="llama-spm", cases=cases, variant="greedy_tokenize",
            mode="verify",
        )
    )  # fmt: skip
    assert done.differences == ()
    assert all(done.cases[case].steps > 0 for case in cases)
    # A second call builds nothing and says nothing.
    assert sides.resolve(f"git:{checkout}@HEAD", lines.append).library == built.library
    assert len(lines) == 1
