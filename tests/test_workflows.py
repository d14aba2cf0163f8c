"""Every step of our jobs and of the action, from a fresh clone, in order; see jobs.py."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from jobs import Done, Runner, python_for_jobs
from made_results import git
from ruamel.yaml import YAML
from test_git_build import checkout as published  # noqa: F401 - a fixture

from llgbench import paths
from llgbench.engines import build as engine_build

ROOT = Path(__file__).resolve().parents[1]
# The device job builds llama.cpp for a device, which takes 20 minutes: it is read here, not run.
DEVICE, NIGHTLY, PULL_REQUEST = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FILES = [ROOT / "action.yml", DEVICE, NIGHTLY, PULL_REQUEST]
# Of the user, and not of this session (conftest.py): the wheel takes minutes to build.
CACHE = paths.cache()

needs = pytest.mark.skipif(
    shutil.which("cargo") is None or shutil.which("valgrind") is None,
    reason="the jobs install cargo and valgrind; here they are missing",
)

BENCHMARK = """
class Facts:
    version = "1"
    unit = "tokens"

    def track_wrong_tokens(self):
        return 0

    def track_broken(self):
        raise RuntimeError
"""


class GitHub:
    """The part of GitHub's interface that a comment needs, on this machine."""

    def __init__(self, *, may_write: bool = True) -> None:
        self.comments: list[dict[str, object]] = [
            {"id": number, "body": "someone's"} for number in range(100)
        ]
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = int(self.path.rpartition("page=")[2]) - 1
                self.answer(outer.comments[100 * page : 100 * page + 100])

            def do_POST(self) -> None:
                self.write({"id": len(outer.comments), "html_url": "https://x/c"})

            def do_PATCH(self) -> None:
                self.write(outer.comments[int(self.path.rpartition("/")[2])])

            def write(self, comment: dict[str, object]) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not may_write:
                    self.send_error(403)
                    return
                if comment not in outer.comments:
                    outer.comments.append(comment)
                comment["body"] = body["body"]
                self.answer(comment)

            def answer(self, content: object) -> None:
                data = json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                outer.asked.append(f"{self.command} {self.path} {self.headers['Authorization']}")

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def github() -> Iterator[GitHub]:
    found = GitHub()
    yield found
    found.close()


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This working tree as a commit on ``main`` of a repository that can be pushed to."""
    bare = tmp_path_factory.mktemp("remote") / "llgbench.git"
    tree = tmp_path_factory.mktemp("tree") / "llgbench"
    try:
        named = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout")
    for name in filter(None, named.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    git(tree, "init", "--quiet", "--initial-branch", "main")
    commit(tree)
    git(tree, "clone", "--quiet", "--bare", ".", str(bare))
    return bare


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet",
        "--message", "one")  # fmt: skip


def runner_of(
    remote: Path, tmp_path: Path, github: GitHub | None = None, workspace: Path | None = None
) -> Runner:
    """Return a new machine: nothing checked out, caches as an earlier run left them."""
    (tmp_path / "temp").mkdir(parents=True)
    home = tmp_path / "home"
    # What cargo compiles on the way is not kept between jobs; here it is, as in conftest.py.
    (home / ".cache" / "llgbench" / "cargo").mkdir(parents=True)
    target = home / ".cache" / "llgbench" / "cargo" / "target"
    target.symlink_to(CACHE / "cargo" / "target-of-tests")
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}))
    kept = ("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("LLGBENCH_", "PYTHON"))},
        **{name: os.environ.get(name, str(Path.home() / folder)) for name, folder in kept},
        "HOME": str(home), "PATH": python_for_jobs(tmp_path / "python"),
        # What is here already is installed from here; the build needs no network either.
        "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "CARGO_NET_OFFLINE": "true",
        "GITHUB_EVENT_PATH": str(event), "GITHUB_REPOSITORY": "owner/llgbench",
        "GITHUB_API_URL": github.url if github else "http://127.0.0.1:9",
    }  # fmt: skip
    workspace = workspace or tmp_path / "llgbench"
    artifacts = tmp_path / "artifacts"

    def checkout(given: Mapping[str, str]) -> None:
        git(tmp_path, "clone", "--quiet", str(remote), str(workspace))

    def cache(given: Mapping[str, str]) -> None:
        assert given["key"].startswith("llgbench-")
        for path in map(Path, given["path"].split()):
            folder = Path(home, *path.parts[1:]) if path.parts[0] == "~" else workspace / path
            if path.name == "*.gguf":
                for file in (ROOT / "vocabs").glob(path.name):
                    if not (folder.parent / file.name).exists():
                        (folder.parent / file.name).symlink_to(file.resolve())
            elif path.name == "engines":
                folder.mkdir()
                for flavour in ("stock", "fallback"):
                    built = engine_build.cached(flavour)
                    if built is None:
                        pytest.skip(f"the engine {flavour} is not built; run: make engines")
                    (folder / built.parent.name).symlink_to(built.parent.resolve())
            else:  # a base that is built or fetched for the first time
                assert folder.parent == home / ".cache/llgbench"
                assert folder.name in ("git", "releases")

    def restore(given: Mapping[str, str]) -> dict[str, str]:
        assert given["path"] == "~/.cache/llgbench/wheels"
        folder = home / ".cache" / "llgbench" / "wheels"
        if not folder.exists():
            folder.symlink_to(CACHE / "wheels")
        return {"cache-hit": "true"}

    def upload(given: Mapping[str, str]) -> None:
        path = workspace / given["path"]
        if path.is_dir():
            shutil.copytree(path, artifacts / given["name"])

    def download(given: Mapping[str, str]) -> None:
        shutil.copytree(artifacts / given["name"], workspace / given["path"])

    runner = Runner(
        workspace,
        tmp_path / "temp",
        environment,
        {
            "runner.os": "Linux", "runner.arch": "X64", "github.token": "read-only",
            "github.server_url": "https://github.com", "github.repository": "owner/llgbench",
        },
        {
            "actions/checkout": checkout, "actions/setup-python": lambda _: None,
            "actions/cache": cache, "actions/cache/restore": restore,
            "actions/upload-artifact": upload, "actions/download-artifact": download,
        },
    )  # fmt: skip
    if not any((CACHE / "wheels").glob("llama_cpp_python-*.whl")):
        pytest.skip("the wheel of llama-cpp-python is not built; run: make install")
    return runner


def at(folder: Path, revision: str, path: str = "") -> list[str]:
    """Return the files of a revision."""
    return git(folder, "ls-tree", "-r", "--name-only", revision, path or ".").split()


# ---- the nightly job ----


@needs
def test_two_nights(remote: Path, tmp_path: Path) -> None:
    """The first measures a few commits; the second those that are left, and nothing again.

    A benchmark that fails makes a red job, whose results are kept and published all the same.
    """
    small = tmp_path / "small"
    git(tmp_path, "clone", "--quiet", str(remote), str(small))
    shutil.rmtree(small / "benchmarks")
    (small / "benchmarks").mkdir()
    (small / "benchmarks" / "__init__.py").touch()
    conf = json.loads((small / "asv.conf.json").read_text())
    conf |= {key: [] for key in ("build_command", "install_command", "uninstall_command")}
    (small / "asv.conf.json").write_text(json.dumps(conf))
    for number in range(2):
        (small / "benchmarks" / "facts.py").write_text(f"{BENCHMARK}# {number}\n")
        commit(small)
    bare = tmp_path / "small.git"
    git(small, "clone", "--quiet", "--bare", ".", str(bare))

    first = night(bare, tmp_path / "first", FIRST="1")
    if "pip" in first.text and "Measure" in first.failed and not at_all(bare, "results"):
        pytest.skip(f"ASV cannot make an environment here: {first.text[-300:]}")
    assert first.failed == {"Measure": 2}, first.text
    head, parent = git(bare, "rev-list", "--max-count=2", "main").split()
    assert measured(bare) == {head[:8]}
    assert "benchmarks/facts.Facts.track_wrong_tokens.html" in at(bare, "gh-pages")
    page = git(bare, "show", "gh-pages:benchmarks/facts.Facts.track_wrong_tokens.html")
    assert f"https://github.com/owner/llgbench/commit/{head}" in page
    written = git(bare, "rev-parse", f"results:{file_of(bare, head)}")

    second = night(bare, tmp_path / "second")
    assert second.failed == {"Measure": 2}, second.text
    assert measured(bare) == {head[:8], parent[:8]}
    assert git(bare, "rev-parse", f"results:{file_of(bare, head)}") == written
    assert git(bare, "rev-list", "--count", "results") == "2\n"
    assert git(bare, "rev-list", "--count", "gh-pages") == "1\n"

    # What a user does with them, beside another machine's results.
    clone = tmp_path / "second" / "measure" / "llgbench"
    environment = {**os.environ, "HOME": str(tmp_path / "second" / "measure" / "home")}
    one, here = ["--bench", "facts.Facts.track_wrong_tokens"], ["--machine", "nightly"]
    for command, said in (
        (["compare", "HEAD~1", "HEAD"], one[1]),
        (["publish"], ""),
        (["show", "HEAD"], one[1]),
        (["run", *one, *here, "HEAD^!"], one[1]),
        (["continuous", *one, *here, "HEAD~1", "HEAD"], "BENCHMARKS NOT SIGNIFICANTLY CHANGED"),
    ):
        ran = subprocess.run(
            [sys.executable, "-m", "asv", *command],
            cwd=clone,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
        assert said in ran.stdout
    assert git(clone, "status", "--porcelain") == ""

    third = night(bare, tmp_path / "third")
    assert third.failed == {}, third.text  # a night without a commit
    assert "nothing new" in third.text
    assert git(bare, "rev-list", "--count", "results") == "2\n"
    summary = (tmp_path / "third" / "measure" / "temp" / "summary.md").read_text()
    assert summary.startswith("0 new alerts")


def night(bare: Path, folder: Path, **values: str) -> Done:
    """Run both jobs of the workflow; return the first, with what the second printed."""
    measuring = runner_of(bare, folder / "measure")
    measuring.values = {"COMMITS": "2", **values}
    done = measuring.job(NIGHTLY, "measure")
    publishing = runner_of(bare, folder / "publish")
    publishing.workspace.parent.mkdir(exist_ok=True)
    shutil.copytree(folder / "measure" / "artifacts", folder / "publish" / "artifacts")
    pushed = publishing.job(NIGHTLY, "publish")
    assert not pushed.failed, pushed.text
    done.text += pushed.text
    return done


def at_all(bare: Path, branch: str) -> bool:
    return bool(git(bare, "branch", "--list", branch))


def measured(bare: Path) -> set[str]:
    names = (Path(path).name for path in at(bare, "results", "results/asv/nightly"))
    return {name.partition("-")[0] for name in names if name != "machine.json"}


def file_of(bare: Path, revision: str) -> str:
    (path,) = (path for path in at(bare, "results") if revision[:8] in path)
    return path


def test_the_night_fuzzes_for_a_time_that_is_bounded() -> None:
    """`make fuzz` itself installs everything anew; here is read what it would run."""
    job = YAML(typ="safe").load(NIGHTLY)["jobs"]["fuzz"]
    last = job["steps"][-1]
    assert last["run"] == "make fuzz"
    assert last["timeout-minutes"] < job["timeout-minutes"] <= 120
    # What it finds is no reason to publish nothing.
    assert YAML(typ="safe").load(NIGHTLY)["jobs"]["publish"]["needs"] == "measure"
    told = subprocess.run(
        ["make", "--dry-run", "fuzz"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"LLGBENCH_FUZZ=2000 .*pytest .*-m fuzz$", told, re.MULTILINE)
    marked = [
        p for p in (ROOT / "tests").glob("test_*.py") if "@pytest.mark.fuzz\n" in p.read_text()
    ]
    assert len(marked) >= 6


# ---- the action, and the job that proves it ----


@needs
def test_a_pull_request_of_this_repository(remote: Path, tmp_path: Path, github: GitHub) -> None:
    runner = runner_of(remote, tmp_path, github)
    outcome: list[Done] = []

    def action(given: Mapping[str, str]) -> None:
        assert set(given) == {"base", "head", "comment"}
        small = {"cases": "listed json-enum", "vocabs": "llama-spm", "budget": "60"}
        small |= {"count": "false", "threshold": "0.1"}
        outcome.append(runner.action(runner.workspace, {**given, **small}))

    runner.uses["./"] = action
    assert not runner.job(PULL_REQUEST, "compare").failed
    (done,) = outcome
    if "cannot be fetched" in done.text:
        pytest.skip(f"no releases to compare: {done.text[-300:]}")
    if "has no room for" in done.text:
        pytest.skip(f"this machine is too busy to compare in a minute: {done.text[-300:]}")
    # Which of them is faster is no question here.
    status = int(done.outputs["steps.compare.outputs.status"])
    assert status in (0, 1), done.text
    assert done.failed == ({"Verdict": 1} if status else {})
    section = runner.summary.read_text()
    assert "pypi:1.9.0" in section
    assert "pypi:1.9.1" in section
    assert (tmp_path / "artifacts" / "llgbench" / "section.md").read_text() == section
    assert github.comments[-1]["body"] == f"<!-- llgbench: llgbench -->\n{section}"
    assert len(github.comments) == 101
    assert all(asked.endswith("Bearer read-only") for asked in github.asked)


@needs
def test_the_action_on_a_checkout(
    remote: Path,
    tmp_path: Path,
    github: GitHub,
    published: Path,  # noqa: F811 - see above
) -> None:
    """A change of documentation alone; then what cannot be compared, with one exit status."""
    llgbench = tmp_path / "actions" / "llgbench"
    git(tmp_path, "clone", "--quiet", str(remote), str(llgbench))
    (published / "README.md").write_text("new\n")
    commit(published)
    runner = runner_of(remote, tmp_path / "machine", github, published)
    done = runner.action(llgbench, {"comment": "true"})
    if "offline" in done.text:
        pytest.skip(f"cargo's cache lacks a dependency: {done.text[-300:]}")
    assert not done.failed, done.text
    assert done.ran[0] == "Tools"
    assert done.ran[-1] == "Verdict"
    assert "identical" in runner.summary.read_text()
    assert git(published, "status", "--porcelain") == ""

    (published / "src" / "lib.rs").write_text("no Rust\n")
    commit(published)
    (tmp_path / "machine" / "artifacts").rename(tmp_path / "machine" / "earlier")
    done = runner.action(llgbench, {"comment": "true"})
    assert done.failed == {"Verdict": 2}, done.text
    said = (tmp_path / "machine" / "artifacts" / "llgbench" / "section.md").read_text()
    assert "cannot compare (exit status 2)" in said
    assert "cannot be built" in said
    assert len(github.comments) == 101
    assert str(github.comments[-1]["body"]).endswith(said)

    done = runner.action(llgbench, {"base": "nowhere"})
    assert done.failed == {"Keys": 2}
    assert "::error::the checkout has no revision nowhere" in done.text


# ---- the comment ----


def comment(
    github: GitHub, folder: Path, text: str, **more: str
) -> subprocess.CompletedProcess[str]:
    event = folder / "event.json"
    event.write_text(more.pop("event", '{"pull_request": {"number": 7}}'))
    (folder / "section.md").write_text(text)
    environment = {
        **os.environ, "GITHUB_API_URL": github.url, "GITHUB_REPOSITORY": "owner/name",
        "GITHUB_EVENT_PATH": str(event), "TOKEN": "secret", **more,
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "comment.py", "name", folder / "section.md"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_comment_is_written_once_and_then_changed(github: GitHub, tmp_path: Path) -> None:
    for text in ("one", "two"):
        done = comment(github, tmp_path, text)
        assert (done.returncode, done.stdout) == (0, "https://x/c\n"), done.stderr
    assert [c["body"] for c in github.comments[100:]] == ["<!-- llgbench: name -->\ntwo"]


def test_a_comment_that_is_too_long_is_cut(github: GitHub, tmp_path: Path) -> None:
    assert comment(github, tmp_path, "x" * 100_000).returncode == 0
    body = str(github.comments[-1]["body"])
    assert len(body) == 65_536
    assert body.endswith("(cut here; the job's artifact has the whole of it)\n")


def test_without_leave_to_comment_the_summary_is_enough(tmp_path: Path) -> None:
    fork = GitHub(may_write=False)
    try:
        done = comment(fork, tmp_path, "one")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("::notice::No comment: the token may not;")
        assert "secret" not in done.stdout
        done = comment(fork, tmp_path, "one", event="{}")
        assert (done.returncode, done.stderr) == (0, "")
        assert "the job has no pull_request" in done.stdout
    finally:
        fork.close()
    done = comment(fork, tmp_path, "one")  # nobody answers
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("::warning::")


# ---- what holds of the files as they are ----


def steps() -> Iterator[tuple[Path, Mapping[str, object]]]:
    for path in FILES:
        loaded = YAML(typ="safe").load(path)
        jobs = loaded["jobs"].values() if "jobs" in loaded else [loaded["runs"]]
        for job in jobs:
            for step in job["steps"]:
                yield path, step


def test_actions_are_pinned_with_their_version_beside() -> None:
    lines = [line for path in FILES for line in path.read_text().splitlines() if "uses: " in line]
    assert len(lines) == sum("uses" in step for _, step in steps())
    for line in lines:
        assert re.search(r"uses: (\./ #|[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$)", line), line


def test_no_token_but_where_it_is_needed() -> None:
    for path in FILES[1:]:
        loaded = YAML(typ="safe").load(path)
        assert loaded["permissions"] == {}, path
        assert "concurrency" in loaded, path
        writing = {n for n, job in loaded["jobs"].items() if "write" in job["permissions"].values()}
        may = {"nightly": {"publish"}, "pull request": {"compare"}, "device": set()}
        assert writing == may[loaded["name"]]


def test_the_job_of_the_documentation_is_a_job() -> None:
    """docs/ci.md's job passes what the action takes, and is as short as it says."""
    text = (ROOT / "docs" / "ci.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    job = YAML(typ="safe").load(block)["jobs"]["performance"]
    (used,) = (s for s in job["steps"] if "llgbench" in s.get("uses", ""))
    inputs = YAML(typ="safe").load(ROOT / "action.yml")["inputs"]
    assert set(used["with"]) <= set(inputs)
    for name in inputs:
        assert f"`{name}`" in text


def test_the_lint_step_reads_every_script() -> None:
    spec = importlib.util.spec_from_file_location("check_shell", ROOT / "tools" / "check_shell.py")
    assert spec is not None
    assert spec.loader is not None
    check_shell = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check_shell)
    read = dict(check_shell.steps())
    assert len(read) == sum("run" in step for _, step in steps())
    assert {path.relative_to(ROOT).as_posix() for path in check_shell.scripts()} == {
        name
        for name in git(ROOT, "ls-files").splitlines()
        if (ROOT / name).is_file() and (ROOT / name).read_bytes().startswith(b"#!")
        and name.partition(".")[2] != "py"
    }  # fmt: skip
