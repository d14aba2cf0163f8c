"""What is here, and what will be skipped and why."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from llgbench.engines import peers, registry
from llgbench.engines.facts import facts
from llgbench.errors import LlgbenchError
from llgbench.inputs import catalogue
from llgbench.llama import api, device
from llgbench.measure import callgrind, provenance, replay

Status = Literal["ok", "skip", "warn"]


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report.

    Attributes:
        what: the thing looked at.
        status: ``ok``; ``skip``, something will not run; ``warn``, numbers may suffer.
        detail: what was found.
        consequence: what will be skipped or what to do; empty where ok.
    """

    what: str
    status: Status
    detail: str
    consequence: str = ""


def examine() -> Iterator[Finding]:
    """Look at engines, vocabularies, llama.cpp's backends, tools, and the machine."""
    for what, look in (
        ("engines", _engines), ("other engines", _peers), ("vocabs", _vocabs),
        ("llama.cpp", _llama), ("tools", _tools), ("valgrind", _valgrind), ("machine", _machine),
    ):  # fmt: skip
        try:
            yield from look()
        except LlgbenchError as error:  # the others are looked at all the same
            yield Finding(what, "skip", str(error), "see the message")
        except OSError as error:  # such as a cache of another user
            yield Finding(what, "skip", f"{error.filename}: {error.strerror}", "see the message")


def _engines() -> Iterator[Finding]:
    for entry in registry.entries().values():
        what = f"engine {entry.name}"
        if entry.fault:
            yield Finding(what, "skip", entry.fault, f"run: {entry.remedy}")
            continue
        if entry.path is None:
            yield Finding(what, "skip", f"{entry.spec}, not here", f"run: {entry.remedy}")
            continue
        try:
            about = facts(registry.locate(entry.name))
            ability = about.fallback_option or "no fallback"
            yield Finding(what, "ok", f"{about.release}, {ability}, sha256 {about.sha256[:12]}")
        except LlgbenchError as error:
            yield Finding(what, "skip", str(error), f"run: {entry.remedy}")


def _peers() -> Iterator[Finding]:
    """Yield the engines other than llguidance; none is needed, so none is missed."""
    for spec in peers.kept():
        try:
            found = peers.locate(spec)
            yield Finding(f"engine {spec}", "ok", f"{found.release}, for llgbench peers")
        except LlgbenchError as error:
            yield Finding(f"engine {spec}", "skip", str(error), "see the message")


def _vocabs() -> Iterator[Finding]:
    entries = catalogue.vocabs()
    absent = [entry.name for entry in entries.values() if not entry.here]
    detail = f"{len(entries) - len(absent)} of {len(entries)} fetched"
    if absent:
        yield Finding("vocabs", "skip", detail, "run: llgbench vocab fetch")
    else:
        yield Finding("vocabs", "ok", detail)


def _llama() -> Iterator[Finding]:
    try:
        api.llama()
    except LlgbenchError as error:
        yield Finding("llama.cpp", "skip", str(error), "nothing can be measured")
        return
    from llama_cpp import llama_cpp as c

    info = c.llama_print_system_info().decode().strip().rstrip("|").strip()
    yield Finding(
        "llama.cpp", "ok", f"llama-cpp-python {provenance.package_version('llama-cpp-python')}"
    )
    yield Finding("llama.cpp CPU", "ok", info)
    found = device.devices()
    for one in found:
        memory = f"{one.free_mib} of {one.memory_mib} MiB free" if one.memory_mib else ""
        driver = "" if one.driver == "unknown" else f"driver {one.driver}"
        about = [one.description.strip(), one.kind, memory, driver]
        yield Finding(f"device {one.name}", "ok", ", ".join(filter(None, about)))
    if all(one.kind == "CPU" for one in found):
        yield Finding(
            "devices", "skip", "none but the CPU: not built for others, or no driver found",
            "--device takes cpu alone; docs/cuda.md has the builds for others",
        )  # fmt: skip


def _tools() -> Iterator[Finding]:
    yield _tool("cargo", "engines are not built: greedy_lexeme_fallback is not available")
    yield _tool("git", "engines of a checkout (git:PATH@REV) are not built")


def _valgrind() -> Iterator[Finding]:
    why = callgrind.missing()
    if why is None:
        yield Finding("valgrind", "ok", "instructions can be counted")
    else:
        yield Finding("valgrind", "skip", why, "no instruction counts")


def _tool(name: str, without: str) -> Finding:
    path = shutil.which(name)
    return Finding(name, "ok", path) if path else Finding(name, "skip", "not found", without)


def _machine() -> Iterator[Finding]:
    machine = provenance.machine()
    yield Finding("cpu", "ok", f"{machine['cpu']}, {len(machine['affinity'])} cores usable")
    governor = machine["governor"]
    if governor in (None, "performance"):
        yield Finding("governor", "ok", governor or "not shown (virtual machine)")
    else:
        yield Finding("governor", "warn", governor, "frequency moves; prefer performance")
    empty = replay.empty_step()
    slow = empty.wall_ns > 100
    yield Finding(
        "empty step", "warn" if slow else "ok",
        f"{empty.wall_ns:.0f} ns a step, of which the clocks read {empty.read_ns:.0f}",
        "times near it are the clock's own" if slow else "",
    )  # fmt: skip
