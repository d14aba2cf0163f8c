"""One group in a worker: configurations of a case on a vocab, judged one by one, timed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llgbench.engines.engine import TokenArray
from llgbench.errors import GrammarError, LlgbenchError
from llgbench.files import one_line
from llgbench.inputs.case import Case
from llgbench.inputs.configuration import Configuration
from llgbench.measure import checks
from llgbench.measure.checks import Judgement, Verdict
from llgbench.measure.messages import (
    Answer,
    Doing,
    Finished,
    Group,
    GroupEnd,
    Judged,
    Measured,
    NotAvailable,
    Stage,
    pack,
)
from llgbench.measure.replay import with_end
from llgbench.measure.rounds import Subject, units
from llgbench.measure.runner import Ready, Tally, Workbench, prepare, traces_of, wrong_tokens


def run(group: Group, bench: Workbench, tally: Tally, stage: Stage) -> Iterator[Answer]:
    """Judge and measure a group; yield each result as it is there.

    Whatever raises for one configuration ends that configuration alone.

    Args:
        group: what to do, and what of it is done already.
        bench: the vocab with its tokenizers.
        tally: told where the time goes.
        stage: told what is done next, before anything foreign is called.
    """
    subject, listed = group.case, group.configurations
    stage.set(Doing.TEXTS)
    try:
        traces = traces_of(subject, bench.vocab)
    except Exception as error:
        yield from (NotAvailable(c, _reason(error)) for c in listed)
        yield _end(tally)
        return
    ready: dict[Configuration, Ready] = {}
    verdicts: dict[Configuration, Verdict] = {}
    known = {configuration: _known(group, configuration) for configuration in listed}
    # What is judged already comes last and without its reference: building tokenizers takes
    # seconds, and a run that is killed again and again is to get further each time.
    for at, configuration in sorted(
        enumerate(listed), key=lambda pair: len(known[pair[1]]) == len(traces)
    ):
        try:
            stage.set(Doing.TOKENIZER, at)
            item = prepare(configuration, subject, bench)
            judgements = known[configuration]
            for number, (text, trace) in enumerate(zip(subject.texts, traces, strict=True)):
                if number in judgements:
                    continue
                stage.set(Doing.TOKENIZER, at)
                reference = bench.reference(item)
                stage.set(Doing.JUDGING, at, number)
                judgements[number] = checks.judge_text(
                    item.tokenizer, reference, item.grammar, text, trace, bench.vocab
                )
                tally.inside_ns += judgements[number].inside_ns
                yield Judged(configuration, number, judgements[number])
            in_order = [judgements[number] for number in range(len(traces))]
            verdicts[configuration] = checks.summarize(item.variant, subject, in_order, bench.vocab)
        except Exception as error:
            yield NotAvailable(configuration, _reason(error, subject))
        else:
            ready[configuration] = item
    ready = {c: ready[c] for c in listed if c in ready}
    if ready:
        yield from _measured(group, ready, traces, tally, stage)
    for configuration, item in ready.items():
        try:
            yield _finished(item, verdicts[configuration], subject, traces, bench)
        except Exception as error:
            yield NotAvailable(configuration, _reason(error))
    yield _end(tally)


def case_facts(subject: Case) -> dict[str, Any]:
    """Return what a record says of a case, measured or not."""
    return {"case_digest": subject.digest, "tags": list(subject.tags), "value": subject.value}


def _known(group: Group, configuration: Configuration) -> dict[int, Judgement]:
    return {j.text: j.judgement for j in group.judged if j.configuration == configuration}


def _measured(
    group: Group, ready: dict[Configuration, Ready], traces: Sequence[TokenArray], tally: Tally,
    stage: Stage,
) -> Iterator[Measured]:  # fmt: skip
    subjects = {str(c): Subject(item.tokenizer, item.grammar) for c, item in ready.items()}
    by_name = {str(c): c for c in ready}
    at = {str(c): number for number, c in enumerate(group.configurations)}

    def doing(name: str, text: int) -> None:
        stage.set(Doing.REPLAYING, at[name], text)

    with_ends = [with_end(trace, next(iter(ready.values())).tokenizer) for trace in traces]
    for unit, parts in units(subjects, with_ends, group.rounds, set(group.measured), doing):
        tally.inside_ns += sum(samples.inside_ns for samples in parts.values())
        yield Measured(unit, [(by_name[name], pack(samples)) for name, samples in parts.items()])


def _finished(
    item: Ready, verdict: Verdict, subject: Case, traces: Sequence[TokenArray], bench: Workbench
) -> Finished:
    table = bench.vocab.table(item.variant.token_bytes)
    return Finished(
        item.configuration,
        engine={
            "name": item.engine_name,
            "release": item.engine.release,
            "sha256": item.engine.sha256,
        },
        verdict=verdict.to_json(),
        facts={
            **case_facts(subject),
            "vocab_sha256": bench.vocab.sha256,
            "vocab_tokens": bench.vocab.n_tokens,
            "wrong_tokens": wrong_tokens(bench.vocab, item.variant),
            "greedy": not item.tokenizer.forces,
            "tokenizer_build_ns": item.tokenizer.build_ns,
            "token_table_ns": table.build_ns,
            "texts": [
                {"name": text.name, "bytes": len(text.data), "tokens": len(trace)}
                for text, trace in zip(subject.texts, traces, strict=True)
            ],
        },
    )


def _end(tally: Tally) -> GroupEnd:
    found = GroupEnd(tally.inside_ns, tally.setup_ns)
    tally.inside_ns = tally.setup_ns = 0
    return found


def _reason(error: Exception, subject: Case | None = None) -> str:
    """Return why a configuration is not available, on one line."""
    match error:
        case GrammarError():
            where = f"{subject.path}: " if subject is not None else ""
            words = subject.explain(error) if subject is not None else error
            return f"does not compile: {where}{one_line(words)}"
        case LlgbenchError():
            return one_line(error)
        case MemoryError():
            return "it needs more memory than the limit allows (--memory-limit)"
    return f"a defect of llgbench, please report it: {type(error).__name__}: {one_line(error)}"
