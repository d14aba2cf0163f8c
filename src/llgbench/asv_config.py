"""ASV on the history of a llguidance checkout: its configuration and its benchmarks.

ASV builds every commit by cargo into a library, and puts that library into an environment of its
own. llgbench is not installed there: the environment looks into the one that wrote the
configuration, so that all commits are measured by one and the same llgbench.
"""

from __future__ import annotations

import json
import shutil
import site
import sys
from collections.abc import Sequence
from pathlib import Path

import llgbench
from llgbench import case, git_build, paths, vocab
from llgbench.configuration import QUICK_JSON_CASES
from llgbench.errors import InputError, RecordError, UnknownNameError

_BENCHMARKS = '''"""Masks, tokens and compilation, commit by commit; written by llgbench asv."""

from llgbench import commit_benchmarks


class Masks:
    """One case on one vocab, in nanoseconds; the samples of a number are rounds."""

    version = "1"
    unit = "ns"
    params = ({cases!r}, {vocabs!r})
    param_names = ("case", "vocab")
    timeout = 300

    def setup(self, case, vocab):
        self.found = commit_benchmarks.measure(case, vocab)

    def track_tbm_p50(self, case, vocab):
        return self.found["TBM p50"]

    def track_tbm_p99(self, case, vocab):
        return self.found["TBM p99"]

    def track_ttfm(self, case, vocab):
        return self.found["TTFM"]

    def track_consume(self, case, vocab):
        return self.found["consume"]
'''


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
        "matrix": {"env_nobuild": {paths.ROOT_VARIABLE: [str(paths.root())]}},
        "install_timeout": 3600,
        "default_benchmark_timeout": 300,
        "benchmark_dir": "benchmarks",
        "env_dir": "env",
        "results_dir": "results",
        "html_dir": "html",
        "build_cache_size": 8,
        "regressions_thresholds": {".*": 0.05},
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
        RecordError: the folder cannot be written.
    """
    repo = repo.expanduser().resolve()
    git_build.parse(f"{git_build.PREFIX}{repo}@{branch}")
    if shutil.which("cargo") is None:
        raise InputError("ASV builds llguidance by cargo, and there is none on PATH")
    for name in cases:
        case.load(name)
    known = vocab.catalogue()
    for name in vocabs:
        if name not in known:
            raise UnknownNameError("vocab", name, known)
    folder = folder or repo.with_name(f"{repo.name}-asv")
    try:
        (folder / "benchmarks").mkdir(parents=True, exist_ok=True)
        path = folder / "asv.conf.json"
        path.write_text(json.dumps(configuration(repo, branch), indent=4) + "\n")
        (folder / "benchmarks" / "__init__.py").write_text("")
        (folder / "benchmarks" / "masks.py").write_text(
            _BENCHMARKS.format(
                cases=list(cases or QUICK_JSON_CASES), vocabs=list(vocabs or ("llama-bpe",))
            )
        )
    except OSError as error:
        raise RecordError(f"cannot write {folder}: {error.strerror}") from None
    return path
