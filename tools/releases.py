"""A git repository whose commits are published releases of llguidance, to try ASV and alerts on.

    python tools/releases.py FOLDER [VERSION]...

Cargo fetches each release's crate; its files become a commit of branch main, tagged vVERSION.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSIONS = ("1.7.6", "1.8.0", "1.9.0", "1.9.1")
_MANIFEST = """[package]
name = "fetch"
version = "0.0.0"
edition = "2021"
[dependencies]
llguidance = "={version}"
"""


def fetch(version: str, folder: Path) -> Path:
    """Let cargo vendor a release; return the folder of its crate."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "lib.rs").touch()
    (folder / "Cargo.toml").write_text(_MANIFEST.format(version=version))
    subprocess.run(
        ["cargo", "vendor", "--quiet"], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    return folder / "vendor" / "llguidance"


def commit(repository: Path, source: Path, version: str, day: int) -> None:
    """Make the files of a release the next commit."""
    for path in repository.iterdir():
        if path.name != ".git":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(
        source, repository, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".cargo*")
    )
    date = f"2025-01-{day:02d}T00:00:00Z"
    git = ["git", "-C", str(repository), "-c", "user.name=releases", "-c"]
    git += ["user.email=releases@example.org"]
    environment = {**os.environ, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    subprocess.run([*git, "add", "--all", "--force", "."], check=True)
    subprocess.run(
        [*git, "commit", "--quiet", "--message", f"llguidance {version}"],
        check=True, env=environment,
    )  # fmt: skip
    subprocess.run([*git, "tag", f"v{version}"], check=True)


def main() -> None:
    """Build the repository."""
    repository = Path(sys.argv[1])
    versions = sys.argv[2:] or list(VERSIONS)
    repository.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(repository)], check=True)
    with tempfile.TemporaryDirectory(prefix="llgbench-") as place:
        for day, version in enumerate(versions, start=1):
            commit(repository, fetch(version, Path(place) / version), version, day)
            print(f"{version}: committed", flush=True)


if __name__ == "__main__":
    main()
