"""ASV on the history of a llguidance checkout: its configuration and its benchmarks.

ASV builds every commit by cargo into a library, and puts that library into an environment of its
own. llgbench is not installed there: the environment looks into the one that wrote the
configuration, so that all commits are measured by one and the same llgbench.
"""

from __future__ import annotations

import json
import os
import shutil
import site
import sys
from collections.abc import Sequence
from pathlib import Path

import llgbench
from llgbench import files, paths
from llgbench.asv import metrics
from llgbench.asv.commit_benchmarks import METRICS, RATIOS, TIMES, method
from llgbench.engines import git_build, registry
from llgbench.engines.facts import facts
from llgbench.errors import InputError, RecordError, UnknownNameError
from llgbench.inputs import case_file, catalogue
from llgbench.inputs.configuration import QUICK_JSON_CASES

# ASV's results, beside the configuration.
RESULTS = "results"

_BENCHMARKS = '''"""Masks, tokens and compilation, commit by commit; written by llgbench asv.

Everything is measured once per commit, in processes that also replay the reference engine,
llguidance {release} ({sha256:.12}), turn by turn.
"""

import os

from llgbench.asv import commit_benchmarks

# Where the cases and vocabularies are; not by ASV's environment, whose name would hold the path.
os.environ.setdefault({variable!r}, {root!r})

CASES = {cases!r}
VOCABS = {vocabs!r}
REFERENCE = {sha256!r}


def setup_cache():
    return commit_benchmarks.measure(CASES, VOCABS, REFERENCE)


setup_cache.timeout = 3600


class _Looked:
    params = (CASES, VOCABS)
    param_names = ("case", "vocab")
    timeout = 60

    def setup(self, found, case, vocab):
        self.metrics = commit_benchmarks.look_up(found, case, vocab)


class {times}(_Looked):
    """Times; they move with what else the machine does."""

    version = "3"
    unit = {time_unit!r}
{time_methods}

class {ratios}(_Looked):
    """Times of the commit / those of the reference; llgbench alerts decides on these."""

    version = "2, beside " + REFERENCE
    unit = {ratio_unit!r}
{ratio_methods}

class Sameness(_Looked):
    """1 where every mask of a case is as the reference has it, else 0."""

    version = "2, beside " + REFERENCE
    unit = {sameness_unit!r}

    def track_masks(self, found, case, vocab):
        return self.metrics.get("same_masks")
'''


def chosen(
    cases: Sequence[str] = (), vocabs: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the cases and vocabularies of a suite, the default where none are named."""
    return tuple(cases or QUICK_JSON_CASES), tuple(vocabs or ("llama-bpe",))


def _methods(suffix: str, getter: str) -> str:
    """Return a method for each metric, each a line one can search for."""
    return "".join(
        f"""
    def {method(name)}(self, found, case, vocab):
        return self.metrics.{getter}({name + suffix!r})
"""
        for name in METRICS
    )


def configuration(repo: Path, branch: str) -> dict[str, object]:
    """Return asv.conf.json for a checkout, as plain data."""
    # ASV looks for executables in the environment alone, so cargo is named by its path.
    cargo = " ".join([shutil.which("cargo") or "cargo", *git_build.BUILD])
    # Outside the checkout, which ASV cleans: what two commits have in common is built once.
    built = f"{{conf_dir}}/target/release/{git_build.LIBRARY}"
    # What the environment sees besides its own: this interpreter's packages and llgbench itself.
    seen = [*site.getsitepackages(), str(Path(llgbench.__file__).parents[1])]
    look = "import pathlib, sysconfig; pathlib.Path(sysconfig.get_path('purelib'), 'llgbench.pth')"
    look += f".write_text({chr(10).join(dict.fromkeys(seen)) + chr(10)!r})"
    return {
        "version": 1,
        "project": "llguidance",
        "project_url": "https://github.com/guidance-ai/llguidance",
        "show_commit_url": "https://github.com/guidance-ai/llguidance/commit/",
        "repo": str(repo),
        "branches": [branch],
        "dvcs": "git",
        "environment_type": "virtualenv",
        "pythons": [f"{sys.version_info.major}.{sys.version_info.minor}"],
        "build_command": [
            f"in-dir={{build_dir}} {cargo} --target-dir {{conf_dir}}/target",
            f"python -c \"import shutil; shutil.copy('{built}', '{{build_cache_dir}}')\"",
        ],
        "install_command": [
            f"python -c \"import shutil; shutil.copy('{{build_cache_dir}}/{git_build.LIBRARY}', "
            "'{env_dir}')\"",
            f'python -c "{look}"',
        ],
        "uninstall_command": [
            f"python -c \"import pathlib; pathlib.Path('{{env_dir}}/{git_build.LIBRARY}')"
            '.unlink(missing_ok=True)"'
        ],
        "install_timeout": 3600,
        "default_benchmark_timeout": 300,
        "benchmark_dir": "benchmarks",
        "env_dir": "env",
        "results_dir": RESULTS,
        "html_dir": "html",
        "build_cache_size": 8,
        "regressions_thresholds": {".*": 0.05},
        # Times step with the machine's load: ASV's list of regressions is that of the ratios.
        "regressions_first_commits": {rf".*\b{TIMES}\.": None},
    }


def write(
    repo: Path,
    folder: Path | None = None,
    branch: str = "main",
    cases: Sequence[str] = (),
    vocabs: Sequence[str] = (),
) -> Path:
    """Write asv.conf.json and its benchmarks.

    Returns:
        The configuration's path.

    Raises:
        InputError: REPO is no checkout with that branch, or ASV or cargo is missing.
        UnknownNameError: a case or vocab of that name does not exist.
        UnavailableError: the installed wheel, the reference of the ratios, is not there.
        RecordError: the folder cannot be written.
    """
    repo = Path(os.path.realpath(os.path.expanduser(repo)))
    git_build.parse(f"{git_build.PREFIX}{repo}@{branch}")
    if shutil.which("cargo") is None:
        raise InputError("ASV builds llguidance by cargo, and there is none on PATH")
    for name in cases:
        case_file.load(name)
    known = catalogue.vocabs()
    for name in vocabs:
        if name not in known:
            raise UnknownNameError("vocab", name, known)
    reference = facts(registry.locate(registry.WHEEL))
    folder = folder or repo.with_name(f"{repo.name}-asv")
    path = folder / "asv.conf.json"
    cases, vocabs = chosen(cases, vocabs)
    benchmarks = _BENCHMARKS.format(
        cases=list(cases),
        vocabs=list(vocabs),
        release=reference.release,
        sha256=reference.sha256,
        times=TIMES,
        ratios=RATIOS,
        variable=paths.ROOT_VARIABLE,
        root=str(paths.root()),
        time_unit=metrics.SECONDS.unit,
        time_methods=_methods("", "seconds"),
        ratio_methods=_methods(" ratio", "get"),
        ratio_unit=metrics.RATIO.unit,
        sameness_unit=metrics.SAME.unit,
    )
    contents = {
        path: json.dumps(configuration(repo, branch), indent=4) + "\n",
        folder / "benchmarks" / "__init__.py": "",
        folder / "benchmarks" / "masks.py": benchmarks,
    }
    with files.folder(folder / "benchmarks", error=RecordError):
        new = [file for file in contents if not file.exists()]
        try:
            for file, content in contents.items():
                files.write(file, content, error=RecordError)
        except RecordError:  # of a suite that is not whole, nothing
            for file in new:
                file.unlink(missing_ok=True)
            raise
    return path
