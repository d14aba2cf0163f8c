"""What the benchmarks written by ``llgbench asv`` measure: one case on the environment's engine.

Cheap to import: ASV's discovery imports the benchmarks of every commit.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROUNDS = 6


def measure(case_name: str, vocab_name: str) -> dict[str, Any]:
    """Replay a case on fresh matchers of the library in this environment.

    Returns:
        By metric, ``{"samples": [one value a round], "number": 1}`` in nanoseconds: the form in
        which ASV computes a median and its interval.

    Raises:
        NotImplementedError: ASV's word for "does not apply here": the vocab is not fetched, or
            this commit's grammar does not compile.
    """
    import numpy as np

    from llgbench import bridge, case, runner
    from llgbench.engine import load
    from llgbench.errors import GrammarError, UnavailableError
    from llgbench.git_build import LIBRARY
    from llgbench.replay import replay, with_end
    from llgbench.variant import get
    from llgbench.vocab import open_vocab

    engine, variant = load(Path(sys.prefix) / LIBRARY), get("greedy_tokenize")
    found: dict[str, list[float]] = {"TBM p50": [], "TBM p99": [], "TTFM": [], "consume": []}
    try:
        with open_vocab(vocab_name) as vocab, bridge.build(engine, vocab, variant) as tokenizer:
            loaded = case.load(case_name)
            grammar = loaded.lark({})
            traces = [with_end(t, tokenizer) for t in runner.traces_of(loaded, vocab)]
            for _ in range(ROUNDS):
                tbm, consume, ttfm = [], [], []
                for trace in traces:
                    with tokenizer.matcher(grammar) as matcher:
                        done = replay(matcher, trace)
                        ttfm.append(matcher.compile_ns + int(done.op_ns[0]))
                    tbm.append(done.tbm_ns)
                    consume.append(done.consume_ns)
                pooled = np.concatenate(tbm)
                found["TBM p50"].append(float(np.median(pooled)))
                found["TBM p99"].append(float(np.percentile(pooled, 99)))
                found["TTFM"].append(float(np.median(ttfm)))
                found["consume"].append(float(np.median(np.concatenate(consume))))
    except (GrammarError, UnavailableError) as error:
        raise NotImplementedError(str(error)) from None
    return {name: {"samples": values, "number": 1} for name, values in found.items()}
