"""Builds the pinned llama-cpp-python once, for any processor, and keeps the wheel.

    python tools/llama_wheel.py         build it unless it is there, and link its folder here
    python tools/llama_wheel.py --key   name it for a cache: what a wheel depends on

By default ggml is compiled for the processor at hand. Such a wheel dies on another one, and pip's
own cache does not tell them apart. So the wheel lies in $LLGBENCH_CACHE/wheels, which pip is given
by --find-links: it prefers a wheel there to the source distribution and its cache of that.
The link .wheels in this checkout is for asv.conf.json, which knows no user's cache.

Runs before anything is installed: the standard library and pip alone.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import tomllib
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from llgbench import paths  # noqa: E402
from llgbench.errors import LlgbenchError  # noqa: E402

PACKAGE = "llama-cpp-python"
# Without GGML_NATIVE the x86-64 build has AVX2 and FMA all the same; docs/decode.md has the cost.
FLAGS = "-DGGML_NATIVE=OFF"
LINK = ".wheels"


def requirement(root: Path = ROOT) -> str:
    """Return the pinned requirement of pyproject.toml, such as ``llama-cpp-python==0.3.36``."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    (found,) = (r for r in project["dependencies"] if r.startswith(f"{PACKAGE}=="))
    return str(found)


def kept(folder: Path, wanted: str) -> Path | None:
    """Return the wheel of a requirement, None where it is not there."""
    name, _, version = wanted.partition("==")
    return next(iter(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl")), None)


def build(folder: Path, wanted: str) -> Path:
    """Build the wheel of a requirement into a folder; who comes second waits.

    Raises:
        SystemExit: there is no pip, or it fails; its own words are on stderr.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = kept(folder, wanted)
        if found is not None:
            return found
        if find_spec("pip") is None:
            print(f"{sys.executable} has no pip; run: python -m ensurepip", file=sys.stderr)
            sys.exit(2)
        print(f"building {wanted} for any processor: 9 minutes on two cores, once", flush=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as place:
            command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
            command += ["--no-cache-dir", "--no-binary", PACKAGE, "--wheel-dir", place, wanted]
            done = subprocess.run(command, env={**os.environ, "CMAKE_ARGS": FLAGS}, check=False)
            built = kept(Path(place), wanted)
            if done.returncode != 0 or built is None:
                sys.exit(f"pip does not build {wanted} (status {done.returncode})")
            return built.replace(folder / built.name)


def link(folder: Path, root: Path = ROOT) -> None:
    """Make the checkout's link to the folder, or mend it."""
    at = root / LINK
    if at.is_symlink() and at.resolve() == folder.resolve():
        return
    at.unlink(missing_ok=True)
    at.symlink_to(folder)


def main() -> None:
    """Run the command."""
    if sys.argv[1:] == ["--key"]:
        print(f"{requirement()}{FLAGS}")
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    try:
        folder = paths.cache() / "wheels"
        wheel = build(folder, requirement())
        link(folder)
    except (LlgbenchError, OSError) as error:
        sys.exit(f"{Path(__file__).name}: {error}")
    print(f"{wheel.name} is in {folder}")


if __name__ == "__main__":
    main()
