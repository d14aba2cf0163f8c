"""The report: records and ASV results as a Markdown section, with its pictures.

The tables are made in tables.py, the pictures in plots.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llgbench import files
from llgbench.asv import alerts
from llgbench.asv.results import AsvValue, read_asv
from llgbench.errors import InputError, RecordError
from llgbench.fallback import summary
from llgbench.inputs.configuration import QUICK_VOCABS, grid
from llgbench.inputs.variant import DEFAULT_VARIANTS
from llgbench.records.record import Record
from llgbench.report import batch, decode, peers, plots
from llgbench.report.asv_tables import asv_tables
from llgbench.report.frames import frame
from llgbench.report.overhead_tables import overhead_tables
from llgbench.report.table import Table
from llgbench.report.tables import RULES, headline, record_tables
from llgbench.shown import in_code, in_markdown

__all__ = ["RULES", "Table", "frame", "headline", "markdown", "read_asv", "tables", "write"]

# A longer table is collapsed in Markdown.
_MAX_OPEN_ROWS = 40


def tables(
    records: Sequence[Record],
    asv: Sequence[AsvValue] = (),
    overhead: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return all tables as plain data, for JSON.

    Args:
        records: as read.
        asv: from read_asv.
        overhead: from overhead_summary.load.

    Raises:
        InputError: no record is given.
        RecordError: nothing was measured in one.
    """
    _need_records(records)
    found = [(str(record.path), table) for record in records for table in record_tables(record)]
    found += [("", table) for table in overhead_tables(overhead or {})]
    found += [("", table) for table in asv_tables(asv)]
    return [
        {
            "record": path or None,
            "table": table.name,
            "title": table.title,
            "rows": list(table.data),
            "notes": list(table.notes),
        }
        for path, table in found
    ]


def write(records: Sequence[Record], folder: Path) -> Path:
    """Write report.md and its pictures into a folder, with what lies there beside the records.

    That is the ASV results, the newest decode and batch records, the fallback's overhead, and other
    engines.

    Raises:
        InputError: no record is given.
        RecordError: nothing was measured in one, an ASV result is damaged, or the folder cannot
            be written.
    """
    _need_records(records)
    path = folder / "report.md"
    with files.folder(folder, error=RecordError):
        # All is read before the first picture is written.
        asv, overhead = read_asv(folder), summary.load(folder)
        marks = alerts.marks(folder)
        decoded, batched = decode.latest(folder), batch.latest(folder)
        others = peers.latest(folder)
        pictures = plots.pictures(records, folder)
        # Links are relative, so that the folder can be moved.
        links = {key: Path(picture.name) for key, picture in pictures.items()}
        text = markdown(records, asv=asv, overhead=overhead, pictures=links, marks=marks)
        if decoded is not None:
            text += "\n" + decode.write(decoded, folder)
        if batched is not None:
            text += "\n" + batch.write(batched, folder)
        if others is not None:
            text += "\n" + peers.write(others, folder)
        files.write(path, text.encode(errors="backslashreplace"), error=RecordError)
    return path


def markdown(
    records: Sequence[Record],
    *,
    asv: Sequence[AsvValue] = (),
    overhead: Mapping[str, Any] | None = None,
    pictures: Mapping[str, Path] | None = None,
    marks: Sequence[str] = (),
) -> str:
    """Return records as a Markdown section, to be pasted whole.

    Each record has its own part: runs are never pooled with each other.

    Args:
        records: as read.
        asv: from read_asv.
        overhead: from overhead_summary.load.
        pictures: by the names that plots.pictures gives them, as they are to be linked.
        marks: what has become slower over commits, one line each.

    Raises:
        InputError: no record is given.
        RecordError: nothing was measured in one.
    """
    _need_records(records)
    lines = ["## Latency of constrained decoding", ""]
    if marks:
        lines += ["### Alerts", "", *(f"- {in_markdown(mark)}" for mark in marks), ""]
    for index, record in enumerate(records):
        lines += _record_section(record, index, pictures or {}, len(records) > 1)
    of_fallback = overhead_tables(overhead or {})
    if of_fallback:
        lines += [f"### {summary.TITLE}", ""]
        lines += _open(of_fallback[0])
        lines += [line for table in of_fallback[1:] for line in _collapsed(table)]
    found = asv_tables(asv)
    if found:
        lines += ["### From ASV", ""]
        lines += [line for table in found for line in _collapsed(table)]
    return "\n".join(lines).rstrip() + "\n"


def _record_section(
    record: Record, index: int, pictures: Mapping[str, Path], several: bool
) -> list[str]:
    found: dict[str, list[Table]] = {}
    for table in record_tables(record):
        found.setdefault(table.name, []).append(table)
    lines = [f"### Run of {record.header.get('created', record.path.stem)}", ""] if several else []
    lines += [f"- {line}" for line in provenance(record)] + [""]
    for table in found.get("headline", []):
        lines += _open(table)
    lines += _picture(pictures, plots.picture_name("tails", index), "Tails of TBM by variant")
    for table in found.get("checkpoints", []):
        lines += _open(table)
    lines += _picture(pictures, plots.picture_name("checkpoints", index), "Cost of a step by n")
    for table in (*found.get("cases", []), *found.get("unavailable", [])):
        lines += _open(table) if len(table.rows) <= _MAX_OPEN_ROWS else _collapsed(table)
    lines += ["How to read it:", "", *(f"- {rule}" for rule in RULES), ""]
    for table in found.get("details", []):
        lines += _collapsed(table)
    return lines


def provenance(record: Record) -> list[str]:
    """Return where and with what a record was measured, one line per subject."""
    p = record.provenance
    machine, git = p.get("machine", {}), p.get("git", {})
    affinity = ", ".join(map(str, machine.get("affinity", [])))
    memory = machine.get("memory_mib")
    commit = git.get("commit")
    dirty = f" with changes {git.get('changes')}" if git.get("dirty") else ""
    packages = ", ".join(f"{name} {version}" for name, version in p.get("packages", {}).items())
    lines = [
        f"Measured {record.header.get('created', 'at an unknown time')}; llgbench "
        f"{p.get('llgbench')}, commit {commit[:12] if commit else 'unknown'}{dirty}; "
        f"Python {p.get('python')}, {packages}.",
        f"Machine: {machine.get('cpu')}, {machine.get('cores')} cores (used: {affinity}), governor "
        f"{machine.get('governor') or 'unknown'}, {machine.get('system')}"
        + (f", {memory / 1024:.0f} GiB" if memory else "") + ".",
        f"Clock: {p.get('clock')}; of every step's time an empty step reads "
        f"{p.get('empty_step_read_ns')} ns, which is not subtracted "
        f"(it costs {p.get('empty_step_wall_ns')} ns in all).",
        f"Engines: {'; '.join(_engines(record))}.",
        f"Vocabularies: {'; '.join(_vocabs(record))}.",
        f"Reproduce: `{in_code(command(record))}`, record `{record.path.name}`"
        + ("." if record.complete else "; the run was not finished, this is what it measured."),
    ]  # fmt: skip
    return lines


def _engines(record: Record) -> list[str]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for entry in record.entries:
        if entry.unavailable is None:
            e = entry.engine
            key = (e.get("name", ""), e.get("release", ""), e.get("sha256", ""))
            variants = found.setdefault(key, [])
            if entry.configuration.variant not in variants:
                variants.append(entry.configuration.variant)
    return [
        in_markdown(f"{name} {release} (sha256 {digest[:12]}) for {', '.join(variants)}")
        for (name, release, digest), variants in found.items()
    ]


def _vocabs(record: Record) -> list[str]:
    found = {
        entry.configuration.vocab: f"{in_markdown(entry.configuration.vocab)} "
        f"({entry.facts.get('vocab_tokens')} tokens, "
        f"sha256 {str(entry.facts.get('vocab_sha256'))[:12]})"
        for entry in record.entries
        if entry.unavailable is None
    }
    return list(found.values())


def command(record: Record) -> str:
    """Return the command that measures a record's configurations again."""
    stored = record.provenance.get("command")
    if stored:
        return str(stored)
    configurations = [entry.configuration for entry in record.entries]
    if any("maskbench" in entry.facts.get("tags", []) for entry in record.entries):
        cases = ["--maskbench DIR"]
    else:
        variants = tuple(dict.fromkeys(c.variant for c in configurations))
        quick = {(c.case, c.vocab) for c in grid("quick", variants, (), QUICK_VOCABS)}
        if {(c.case, c.vocab) for c in configurations} == quick:
            return "llgbench run --profile quick"
        cases = [
            f"--case {shlex.quote(name)}" for name in dict.fromkeys(c.case for c in configurations)
        ]
    parts = ["llgbench run", *cases]
    for option in ("vocab", "variant", "engine"):
        named = dict.fromkeys(getattr(c, option) for c in configurations)
        if option == "variant" and set(named) == set(DEFAULT_VARIANTS):
            continue
        parts += [f"--{option} {shlex.quote(name)}" for name in named if name != "default"]
    return " ".join(parts)


def _open(table: Table) -> list[str]:
    return [f"**{in_markdown(table.title)}**", "", *table.markdown(), "", *_notes(table)]


def _collapsed(table: Table) -> list[str]:
    return [
        f"<details><summary>{in_markdown(table.title)}</summary>", "", *table.markdown(), "",
        *_notes(table), "</details>", "",
    ]  # fmt: skip


def _notes(table: Table) -> list[str]:
    return [line for note in table.notes for line in (note, "")]


def _picture(pictures: Mapping[str, Path], key: str, text: str) -> list[str]:
    return [f"![{text}]({pictures[key].as_posix()})", ""] if key in pictures else []


def _need_records(records: Sequence[Record]) -> None:
    if not records:
        raise InputError("no record to report; run: llgbench run")
