"""What the ASV benchmarks call: the quick grid measured once, and its values one by one.

ASV starts a process for every value. Measuring in each would take hours and compare variants
minutes apart, so the grid is measured in one process, interleaved, and kept as a record; the
benchmarks read from it. A value is what ASV takes from a ``track_*`` benchmark: a number, or
``{"samples": […], "number": 1}`` whose median and spread ASV computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from llgbench.asv import metrics as asv_metrics
from llgbench.fallback.pending import STATES
from llgbench.inputs.configuration import QUICK_VOCABS, Configuration, grid, is_json
from llgbench.inputs.variant import DEFAULT_VARIANTS
from llgbench.records import stats
from llgbench.records.record import SOUND, Arrays, Entry, by_round

Value = float | dict[str, Any]
# Metric name by configuration name; a string in place of the metrics says why there are none.
Values = dict[str, dict[str, Value] | str]

NOT_A_NUMBER = float("nan")
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 99.9, "max": 100.0}
TIMES = (
    "cold_mask", "cold_consume", "tbm", "warm_mask", "warm_consume", "sibling_mask",
    "sibling_consume", "cached_mask",
)  # fmt: skip
POOLED = "json"
HARNESS = "harness"


def configurations() -> list[str]:
    """Return the quick grid's configurations as ASV's parameters: strings, listed."""
    return [str(c) for c in grid("quick", DEFAULT_VARIANTS, (), ())]


def pooled_configurations() -> list[str]:
    """Return one parameter a vocab and variant: the JSON cases pooled, as the field does."""
    return [str(Configuration(POOLED, v, w)) for v in QUICK_VOCABS for w in DEFAULT_VARIANTS]


def checkpoint_configurations() -> list[str]:
    """Return the members of the grid that are checkpoints."""
    return [text for text in configurations() if text.startswith("checkpoint@")]


def measure(results: Path | None = None) -> Values:
    """Measure the quick grid into a record and return every tracked value."""
    from llgbench.measure import recording

    # ASV shows what a set-up prints only when asked; its own progress goes on meanwhile.
    listed = [Configuration.parse(text) for text in configurations()]
    recorded = recording.record(
        listed, recording.QUICK, results=results, command="llgbench run --profile quick"
    )
    found = values(recorded.record.entries)
    tally, where_from = recorded.tally, recorded.record.provenance
    found[HARNESS] = {
        "overhead": tally.wall_ns / max(tally.inside_ns, 1),
        "empty_step": float(where_from["empty_step_wall_ns"]),
    }
    return found


def values(entries: Sequence[Entry]) -> Values:
    """Return the tracked values of a record's entries, and of the JSON cases pooled."""
    found: Values = {}
    for entry in entries:
        name = str(entry.configuration)
        found[name] = entry.unavailable or _not_judged(entry) or _of_entry(entry)
    for text in pooled_configurations():
        wanted = Configuration.parse(text)
        members = [
            entry
            for entry in entries
            if is_json(entry.configuration.case)
            and entry.configuration.vocab == wanted.vocab
            and entry.configuration.variant == wanted.variant
        ]
        found[text] = _pooled(members)
    return found


def _not_judged(entry: Entry) -> str:
    """Return why an entry has no verdict on any mask, empty where it has one."""
    label, reason = entry.verdict["label"], entry.verdict["reason"]
    return f"{label}: {reason}" if label == "not judged" else ""


def require(found: Values, name: str) -> dict[str, Value]:
    """Return the metrics of a configuration.

    Raises:
        NotImplementedError: it has none; ASV shows n/a, the message says why.
    """
    metrics = found.get(name, "it was not measured")
    if isinstance(metrics, str):
        raise NotImplementedError(metrics)
    return metrics


def look_up(found: Values, name: str, metric: str) -> Value:
    """Return one value, NaN (ASV's n/a) where the sample cannot carry it; see :func:`require`."""
    return require(found, name).get(metric, NOT_A_NUMBER)


def _of_entry(entry: Entry) -> dict[str, Value]:
    metrics = _times([entry])
    verdict = entry.verdict
    metrics["forbidden"] = float(verdict["forbidden"])
    metrics["accepted"] = float(verdict["accepted"])
    metrics["wrong"] = float(verdict["label"] == "wrong")
    metrics["wrong_tokens"] = float(entry.facts["wrong_tokens"])
    metrics["tokenizer_build"] = float(entry.facts["tokenizer_build_ns"])
    metrics["token_table"] = float(entry.facts["token_table_ns"])
    return metrics


def _pooled(entries: Sequence[Entry]) -> dict[str, Value] | str:
    """Pool what is right; a wrong mask's time is no time."""
    right = [e for e in entries if not e.unavailable and e.verdict["label"] in SOUND]
    if not right:
        return "; ".join(
            dict.fromkeys(
                e.unavailable or f"{e.verdict['label']}: {e.verdict['reason']}" for e in entries
            )
        )
    return {**_times(right), "right_cases": float(len(right))}


def _times(entries: Sequence[Entry]) -> dict[str, Value]:
    metrics: dict[str, Value] = {}
    for name in TIMES:
        # A block is a round: every text of every case once, so that blocks differ by noise alone.
        rounds = _rounds(entries, name)
        for label, q in PERCENTILES.items():
            _put(metrics, f"{name}_{label}", stats.block_percentiles(rounds, q))
    for name in ("compile", "first_mask", "ttfm"):
        _put(metrics, name, [x for entry in entries for x in _of_start(entry, name)])
    return metrics


def _rounds(entries: Sequence[Entry], name: str) -> Arrays:
    """Return all steps of each round, pooled over the entries."""
    of_entries = [by_round(entry, _replays(entry, name)) for entry in entries]
    count = min(map(len, of_entries), default=0)
    if count <= 1:
        return [stats.pool(a for rounds in of_entries for part in rounds for a in part)]
    return [
        stats.pool(array for rounds in of_entries for array in rounds[number])
        for number in range(count)
    ]


def _replays(entry: Entry, name: str) -> Arrays:
    samples = entry.samples
    if name != "tbm":
        return list(samples.get(name, []))  # an older record has no siblings
    pairs = zip(samples["cold_mask"], samples["cold_consume"], strict=True)
    return [mask[: len(consume)] + consume for mask, consume in pairs]


def _of_start(entry: Entry, name: str) -> list[float]:
    """Return compilation, first mask, or both, of each cold replay that had a mask."""
    pairs = zip(entry.samples["compile"][0], entry.samples["cold_mask"], strict=True)
    started = [(float(compile_ns), float(masks[0])) for compile_ns, masks in pairs if len(masks)]
    match name:
        case "compile":
            return [compile_ns for compile_ns, _ in started]
        case "first_mask":
            return [first for _, first in started]
    return [compile_ns + first for compile_ns, first in started]


def _put(metrics: dict[str, Value], name: str, samples: list[float]) -> None:
    if samples:
        metrics[name] = {"samples": samples, "number": 1}


def give(
    owner: type, metrics: Sequence[str], named: Callable[[str], str] = lambda name: name
) -> None:
    """Give a class of looked-up benchmarks a ``track_`` method for each metric, with its unit.

    Args:
        owner: the class.
        metrics: by name, each declared in :mod:`llgbench.asv.metrics`.
        named: under which name a parameter's values are looked up.
    """
    for metric in metrics:
        tracker = _tracker(metric, named)
        declared = asv_metrics.declared(owner.__name__, metric)
        if declared is None:
            raise ValueError(f"{owner.__name__}.{metric} is declared nowhere; see asv/metrics.py")
        tracker.unit = declared.unit  # type: ignore[attr-defined]
        setattr(owner, tracker.__name__, tracker)


def _tracker(metric: str, named: Callable[[str], str]) -> Callable[..., Value]:
    def look_up_metric(_: object, found: Values, configuration: str) -> Value:
        return look_up(found, named(configuration), metric)

    look_up_metric.__name__ = f"track_{metric}"
    look_up_metric.__doc__ = f"Return {metric}."
    return look_up_metric


# ---- benchmarks that measure by themselves -----------------------------------------------------


def require_available(configuration: str) -> None:
    """Raise NotImplementedError with the reason where a configuration cannot run here.

    For an ASV ``setup``: raised anywhere else it would count as a failure.
    """
    from llgbench.errors import UnavailableError
    from llgbench.measure import runner

    wanted = Configuration.parse(configuration)
    try:
        runner.engine_for(wanted)
        runner.Workbench(wanted.vocab).close()
    except UnavailableError as error:
        raise NotImplementedError(str(error)) from None


def operation(configuration: str, name: str, rounds: int = 5) -> Value:
    """Time one operation at every step of a case's texts: validate, forced or rollback.

    Returns:
        The medians of the rounds, nanoseconds.
    """
    from llgbench.inputs import case_file
    from llgbench.measure import runner
    from llgbench.measure.replay import Op, replay

    wanted = Configuration.parse(configuration)
    subject = case_file.load(wanted.case)
    medians = []
    with runner.Workbench(wanted.vocab) as bench:
        item = runner.prepare(wanted, subject, bench)
        traces = runner.traces_of(subject, bench.vocab)
        with item.tokenizer.matcher(item.grammar) as matcher:
            for trace in traces:  # the lexer's states are built here, not in what is timed
                replay(matcher, trace, reset=True)
            for _ in range(rounds):
                done = [
                    replay(matcher, trace, Op[name.upper()], reset=True).op_ns for trace in traces
                ]
                medians.append(float(np.median(stats.pool(done))))
    return {"samples": medians, "number": 1}


class TokenizerBuilder:
    """Builds a variant's tokenizer and token table, again and again, with the times in ns."""

    def __init__(self, vocab: str, variant: str) -> None:
        """Open the vocab and the engine.

        Raises:
            NotImplementedError: they are not here.
        """
        from llgbench.errors import UnavailableError
        from llgbench.inputs.variant import get
        from llgbench.measure import runner

        self._variant = get(variant)
        try:
            self._bench = runner.Workbench(vocab)
            self._engine = runner.engine_for(Configuration("", vocab, variant))
        except UnavailableError as error:
            raise NotImplementedError(str(error)) from None

    def table_ns(self) -> int:
        """Build the token table."""
        with self._bench.vocab.build_table(self._variant.token_bytes) as table:
            return table.build_ns

    def tokenizer_ns(self) -> int:
        """Build the tokenizer, the token table being there."""
        from llgbench.llama import bridge

        with bridge.build(self._engine, self._bench.vocab, self._variant) as tokenizer:
            return tokenizer.build_ns

    def close(self) -> None:
        """Close what was opened."""
        self._bench.close()


def wrong_tokens(vocab: str, variant: str) -> float:
    """Return how many tokens a variant gives llguidance with wrong bytes."""
    from llgbench.inputs.variant import get
    from llgbench.llama.vocab import open_vocab
    from llgbench.measure import runner

    with open_vocab(vocab) as opened:
        return float(runner.wrong_tokens(opened, get(variant)))


OVERHEAD_CASES = ("json-nested", "github-workflow", "large-enum")
CURVE = tuple(f"{n} | {how}" for n in (64, 256, 1024, 4096) for how in ("shadow", "replay"))

# In instructions: the shortest case, and lengths that take seconds; the whole is
# ``llgbench overhead --count``.
COUNTED_CASES = ("json-tool-call",)
COUNTED_CURVE = tuple(f"{n} | {how}" for n in (64, 256) for how in ("shadow", "replay"))
PENDING = tuple(state.name for state in STATES)
COUNTED_RATIOS = (
    "off_mask", "off_consume", "off_step", "on_mask", "on_consume", "on_step",
)  # fmt: skip
_COUNTED = "counted "


def fallback(vocab: str = "llama-bpe") -> Values:
    """Return what the fallback costs: ratios by case, masks by state, and a checkpoint's steps.

    Times, and beside them instructions where they can be counted.
    """
    from llgbench.errors import UnavailableError
    from llgbench.fallback import overhead

    try:
        found: Values = {
            ratios.case: {
                "off_mask": ratios.off_mask,
                "off_consume": ratios.off_consume,
                "on_mask": ratios.on_mask,
                "on_consume": ratios.on_consume,
            }
            for ratios in overhead.on_json(vocab, rounds=6, cases=OVERHEAD_CASES)
        }
        for times in overhead.pending(vocab):
            found[times.state] = {"time": times.over_dearer}
        lengths = sorted({int(name.partition(" ")[0]) for name in CURVE})
        for point in overhead.curve(lengths, replays=3):
            found[f"{point.n} | {point.strategy}"] = {
                "dearest": point.dearest_ns,
                "median": point.median_ns,
            }
    except UnavailableError as error:
        found = dict.fromkeys((*OVERHEAD_CASES, *PENDING, *CURVE), str(error))
    return {**found, **{f"{_COUNTED}{name}": of for name, of in _counted(vocab).items()}}


def counted(name: str) -> str:
    """Return under which name the instructions of a case, state or point are looked up."""
    return f"{_COUNTED}{name}"


def _counted(vocab: str) -> Values:
    from llgbench.errors import LlgbenchError
    from llgbench.fallback import counted as overhead_counting

    lengths = sorted({int(name.partition(" ")[0]) for name in COUNTED_CURVE})
    try:
        found: Values = {
            ratios.case: {name: getattr(ratios, name) for name in COUNTED_RATIOS}
            for ratios in overhead_counting.on_json(vocab, seeds=1, cases=COUNTED_CASES)
            if ratios.kind == "warm"
        }
        for state in overhead_counting.pending(vocab):
            found[state.state] = {"instructions": state.over_dearer}
        for point in overhead_counting.curve(lengths):
            found[f"{point.n} | {point.strategy}"] = {
                "dearest": float(point.dearest),
                "median": point.median,
            }
    except LlgbenchError as error:
        return dict.fromkeys((*COUNTED_CASES, *PENDING, *COUNTED_CURVE), str(error))
    return found
