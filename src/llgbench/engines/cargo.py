"""The one driver for cargo: what it sees of the environment, what a key holds, who builds.

Sources are laid out in one place, compiled into one target folder and built one at a time: equal
sources give equal libraries, common dependencies are compiled once, and nothing of one build can
be taken for another's.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from llgbench import files, paths, processes
from llgbench.engines import store
from llgbench.errors import EngineError, InputError, UnavailableError
from llgbench.last_words import last_words

# All that cargo, rustc and a revision's build scripts see of the user's environment: what finds
# the compiler and the network. No token, and no flag that would change the library: flags belong
# into the sources.
_KEPT_VARIABLES = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_ALL|TMPDIR|TZ|LD_LIBRARY_PATH"
    r"|CARGO_HOME|RUSTUP_HOME|RUSTUP_TOOLCHAIN|RUSTUP_AUTO_INSTALL"
    r"|CARGO_(NET|HTTP)_\w+|CARGO_REGISTRIES_\w+_(INDEX|PROTOCOL)|CARGO_REGISTRY_DEFAULT"
    r"|(?i:https?_proxy|no_proxy|all_proxy)"
    r"|SSL_CERT_(FILE|DIR)|CURL_CA_BUNDLE|GIT_SSL_CAINFO"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL")
# What users set to change a library, and is not used; named to those who set it.
_FLAGS = re.compile(r"RUSTFLAGS|CARGO_ENCODED_RUSTFLAGS|CARGO_(BUILD|PROFILE|TARGET)_\w+|RUSTC\w*")

# Part of every key. A change of this module that changes what is built takes a new number.
_POLICY = 1

# With all its debug information a library is large; a larger one is a mistake.
_LARGEST = 4 << 30


def missing() -> str | None:
    """Return one line that says what is missing to build engines here; None where nothing is."""
    absent = [tool for tool in ("cargo", "rustc") if shutil.which(tool) is None]
    if absent:
        return f"no {' and no '.join(absent)} on PATH: install Rust (stable) to build engines"
    try:
        rustc_version()
    except UnavailableError as error:
        return str(error)
    return None


def key(*inputs: str | bytes) -> str:
    """Return the key of a build: a hash of its inputs and of all else that changes the library.

    That is the compiler, and cargo's configuration files of this user, which may hold flags,
    profiles and linkers.

    Raises:
        UnavailableError: rustc is missing or does not run.
    """
    digest = hashlib.sha256()
    for part in (str(_POLICY), rustc_version(), *_configuration(), *inputs):
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:16]


@contextmanager
def building(what: str, report: Callable[[str], None]) -> Iterator[Path]:
    """Hold cargo's place in the cache for one build; wait where another process builds.

    Args:
        what: what is built, in a few words.
        report: called with a line that says who builds, before this process waits.

    Yields:
        The empty folder for the sources.

    Raises:
        InputError: the cache cannot be written.
    """
    source = _folder() / "source"
    with (
        store.writing(_target()),
        files.locked(_target() / "llgbench.lock", f"builds {what}", report, error=InputError),
    ):
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        yield source
        shutil.rmtree(source, ignore_errors=True)


def build(
    arguments: list[str], source: Path, library: str, log: Path, report: Callable[[str], None]
) -> bytes:
    """Build a library; call it inside of :func:`building`.

    Args:
        arguments: of cargo.
        source: where cargo runs.
        library: name of the library's file.
        log: gets cargo's words.
        report: called with a line for each flag of the user's that is not used.

    Returns:
        The library's content.

    Raises:
        EngineError: cargo fails or builds no such library.
    """
    for name in dropped_flags():
        report(f"{name} is set and not used: every engine is built by its sources' own profile")
    for folder in _outputs():
        (folder / library).unlink(missing_ok=True)
    _forget(source)
    run(arguments, source, log)
    for folder in _outputs():
        if (folder / library).is_file():
            return files.read(folder / library, limit=_LARGEST, error=EngineError)
    raise EngineError(f"cargo built no {library}; the log is {log}")


def run(arguments: list[str], cwd: Path, log: Path) -> str:
    """Run cargo and return what it writes on stdout.

    Raises:
        UnavailableError: there is no cargo.
        EngineError: it fails; the message has its last words and the log's place.
    """
    lack = missing()
    if lack is not None:
        raise UnavailableError(lack)
    with store.writing(log.parent):
        file = log.open("ab")
    with file:
        file.write(f"$ cargo {' '.join(arguments)}\n".encode())
        file.flush()
        done = processes.run(
            ["cargo", *arguments], cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=file
        )
    if not done.ok:
        raise EngineError(f"cargo {arguments[0]} fails: {_last_words(log)}; the log is {log}")
    return done.stdout.decode(errors="replace")


def environment() -> dict[str, str]:
    """Return all that cargo and what it runs see of the environment; see _KEPT_VARIABLES."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if _KEPT_VARIABLES.fullmatch(name) and not _SECRET.search(name)
    }
    # A source's own rust-toolchain.toml may ask for a toolchain that is not installed, and both
    # sides of a comparison are to have one compiler.
    return {
        "RUSTUP_TOOLCHAIN": "stable",
        **kept,
        "CARGO_TARGET_DIR": str(_target()),
        "CARGO_TERM_COLOR": "never",
    }


def dropped_flags() -> list[str]:
    """Return the variables that are set to change a library, and are not used."""
    return sorted(
        name
        for name in os.environ
        if _FLAGS.fullmatch(name) and not _KEPT_VARIABLES.fullmatch(name)
    )


@lru_cache(maxsize=1)
def rustc_version() -> str:
    """Return what ``rustc -vV`` says.

    Raises:
        UnavailableError: it does not run.
    """
    # Asked by nearly every command, and done in no time: without a keeper and temporary files.
    try:
        done = subprocess.run(
            ["rustc", "-vV"], env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
            check=False,
        )  # fmt: skip
    except OSError as error:
        raise UnavailableError(f"rustc does not run: {error.strerror}") from None
    if done.returncode != 0:
        words = last_words(done.stderr.decode(errors="replace"))
        raise UnavailableError(f"rustc does not run: {words}")
    return done.stdout.decode(errors="replace")


def _configuration() -> Iterator[bytes]:
    """Yield the content of each configuration file that cargo reads besides the sources' own."""
    home = os.environ.get("CARGO_HOME")
    folders = [] if home is None else [Path(home)]
    with suppress(RuntimeError):  # no home folder
        folders.append(Path.home() / ".cargo")
    folders += [folder / ".cargo" for folder in (_folder(), *_folder().parents)]
    for path in dict.fromkeys(f / name for f in folders for name in ("config.toml", "config")):
        with suppress(OSError):
            yield path.read_bytes()


def _forget(source: Path) -> None:
    """Make cargo compile every package of the sources, whatever it compiled in their place before.

    It tells a changed file by its time alone. The dependencies, which it knows by their versions,
    stay compiled.
    """
    for manifest in source.rglob("Cargo.toml"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            name = str(tomllib.loads(manifest.read_text())["package"]["name"])
            if re.fullmatch(r"[\w-]+", name):
                for output in _outputs():
                    for folder in output.glob(f".fingerprint/{name}-*"):
                        shutil.rmtree(folder)


def _last_words(log: Path) -> str:
    """Return on one line cargo's first error, its last, and the last of what it says."""
    said = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in said if line.startswith("error")]
    return files.one_line(" / ".join(dict.fromkeys(errors[:1] + errors[-1:] + said[-1:])))


def _folder() -> Path:
    return paths.cache() / "cargo"


def _outputs() -> list[Path]:
    """Return where cargo puts what it builds; below the target's name where a source sets one."""
    return [_target() / "release", *_target().glob("*/release")]


def _target() -> Path:
    return _folder() / "target"
