"""Do the engine's tests see a fault? Seeds one at a time into the fallback and runs them.

    python tools/mutate.py                 every fault; a line each, and how many were not seen
    python tools/mutate.py --only lost     those with "lost" in the name
    python tools/mutate.py --list          their names

A fault is a piece of the engine's source put in place of another. It is built without link-time
optimization (half a minute each), and the tests run until one
fails. ``survived`` means that none did: a test is missing, or the change is none. ``stale`` means
that the source no longer has the piece. The tests run without a fault first, and must pass.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from llgbench import paths
from llgbench.engines import build, cargo

ROOT = Path(__file__).resolve().parents[1]
FALLBACK = "llguidance/src/earley/parser/fallback.rs"
# The tests take a minute; a fault that makes one hang is seen.
LONGEST = 1800
# Generated grammars: as many as see a fault where one is to be seen.
FEW = {"LLGBENCH_FUZZ": "60"}
LIBRARY = "libllgbench_engine.so"
PROFILE = """
[profile.mutant]
inherits = "release"
opt-level = 1
lto = "off"
codegen-units = 16
incremental = true
"""


@dataclass(frozen=True)
class Fault:
    """One change of the source.

    Attributes:
        name: what goes wrong.
        old: what stands in the source, once.
        new: what is put there.
        file: of the build's folder.
    """

    name: str
    old: str
    new: str
    file: str = FALLBACK


FAULTS = (
    Fault("mask cache kept over a rollback", "self.bias_cache = None;", ""),
    Fault(
        "a level's acceptance keeps its older boundary",
        "if accepts {\n            reading.boundary = None;", "if accepts {",
    ),
    Fault(
        "captures of a dropped level lost",
        "let newer = std::mem::replace(captures, dropped);",
        "let newer = std::mem::replace(captures, Captures::new());\n        drop(dropped);",
    ),
    Fault(
        "a stop's hidden bytes do not end a reading",
        "self.next == Next::Bytes", "self.next != Next::Nothing",
    ),
    Fault(
        "lexemes that the end token ends, not looked for",
        "if self.lexer_spec().eos_ending_lexemes().is_empty() {",
        "if true {",
    ),
    Fault(
        "a level's lexeme begins at the last byte",
        "Some(_) if self.scratch.definitive => self.lexeme_start(base - 1),",
        "Some(_) if self.scratch.definitive => base - 1,",
    ),
    Fault(
        "the lexeme of a dropped level stays, at the end of input",
        "if self.accepts(top) {\n            self.forget_lexeme(top.row_idx);", "if false {",
    ),
    Fault(
        "every boundary counts",
        "let useful = self.lexer().dfa.may_begin_with(byte);",
        "let useful = byte as usize <= 256;",
    ),
    Fault("displaced rows lost", "self.rows[idx] = row;", "let _ = (idx, row);"),
    Fault(
        "an empty lexeme is taken for the stack's reading",
        "&& reading.top.byte.is_some()\n            && reading.top.lexer_state",
        "&& reading.top.lexer_state",
    ),
    Fault(
        "no snapshots", "snapshots.push(Snapshot { base, readings });",
        "let _: Vec<Reading> = readings;"
    ),
    Fault("snapshots of rows that were written over", "readings.pop();", "break;"),
    Fault(
        "snapshots of another reading", ".filter(|known| known.base >= since);",
        ".filter(|known| known.base + 1 > since.min(1));",
    ),
    Fault(
        "the mask's key without the levels' states",
        "key.push(level.reading.top.lexer_state.as_u32());", "",
    ),
    Fault("the mask's key without the position", "key.push(self.lexer_stack.len() as u32);", ""),
    Fault(
        "readings that disagree force a byte",
        "if found.is_some_and(|other| other != byte) {", "if false {",
    ),
    Fault(
        "of many levels, one that could end is passed by",
        "found.add(ByteSet::of(|byte| dfa.may_begin_with(byte)));", "",
    ),
    Fault(
        "a slice although the longer reading may end",
        "return !above\n", "return true || !above\n",
    ),
    Fault(
        "a level's items count",
        "self.max_all_items = self.max_all_items.saturating_add(spent);", "let _ = spent;",
    ),
    Fault(
        "levels kept over a new acceptance", "self.keep_levels(0);\n        let last", "let last"
    ),
    Fault("levels kept over a promotion", "self.fallback.levels.drain(..level);", "let _ = level;"),
    Fault(
        "levels of a walk kept although their nodes end",
        "self.note_walk(Leaves::FleetingLevel);", "self.note_walk(Leaves::Traces);",
    ),
    Fault(
        "no state is past a boundary at once", "DeadEnd::Emit => self.may_begin_with(byte),",
        "DeadEnd::Emit => false,", "llguidance/src/earley/regexvec.rs",
    ),
    Fault(
        "states known before are not past a boundary",
        "todo.extend_from_slice(&self.state_table[row..row + width]);", "let _ = row;",
        "llguidance/src/earley/regexvec.rs",
    ),
    Fault(
        "one name of the option", "self.greedy_lexeme_fallback || self.lexer_backtracking",
        "self.greedy_lexeme_fallback", "llguidance/src/api.rs",
    ),
    Fault(
        "a lexeme that began before a jump loses its first bytes",
        "Some(jump) => jump.lexeme_from,", "Some(_) => first,",
    ),
)  # fmt: skip


# What is said of a fault that no test has met.
STALE, UNBUILT = "stale", "does not build"


def tried(fault: Fault, folder: Path, target: Path) -> str | None:
    """Return the first test that fails with a fault, None, or why it could not be tried."""
    path = folder / fault.file
    source = path.read_text()
    if source.count(fault.old) != 1:
        return STALE
    path.write_text(source.replace(fault.old, fault.new))
    try:
        return failing(folder, target)
    finally:
        path.write_text(source)


def failing(folder: Path, target: Path) -> str | None:
    """Return the first test that fails with the engine as the folder has it, or None."""
    done = subprocess.run(
        ["cargo", "build", "--profile", "mutant", "--features", "fallback", "--locked",
         "--offline", "--quiet"],
        cwd=folder, env={**cargo.environment(), "CARGO_TARGET_DIR": str(target)},
        capture_output=True, check=False,
    )  # fmt: skip
    return seen_by(target / "mutant" / LIBRARY) if done.returncode == 0 else UNBUILT


def seen_by(library: Path) -> str | None:
    """Return the first test that fails with a library, or None."""
    # Item by item is done in seconds, and sees most faults.
    for file in ("tests/test_fallback.py", "tests/test_fallback_reference.py"):
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-x", "-q", file],
                cwd=ROOT, env={**os.environ, "LLGBENCH_MUTANT": str(library), **FEW},
                capture_output=True, text=True, check=False, timeout=LONGEST,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "no end"
        if done.returncode != 0:
            lines = done.stdout.splitlines()
            failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
            # A fault may also kill the process.
            return (
                failed[0].split("::")[-1].split(" - ")[0] if failed else f"exit {done.returncode}"
            )
    return None


def main() -> int:
    """Run what the command line asks for; 1 where a fault was not seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", metavar="TEXT", help="faults with this in the name")
    parser.add_argument("--list", action="store_true", help="names only")
    given = parser.parse_args()
    faults = [fault for fault in FAULTS if given.only in fault.name]
    if given.list:
        print("\n".join(fault.name for fault in faults))
        return 0
    target = paths.cache() / "cargo" / "target-of-mutants"
    unseen = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build.lay_out("fallback", folder)
        with (folder / "Cargo.toml").open("a") as file:
            file.write(PROFILE)
        # A test that fails without a fault sees none.
        if faults and (found := failing(folder, target)) is not None:
            print(f"without a fault: {found}", file=sys.stderr)
            return 2
        for fault in faults:
            found = tried(fault, folder, target)
            if found in (None, STALE, UNBUILT):
                unseen.append(fault.name)
            print(f"{fault.name}: {'survived' if found is None else found}", flush=True)
    print(f"{len(faults) - len(unseen)} of {len(faults)} killed")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
