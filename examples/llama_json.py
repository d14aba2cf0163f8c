"""llama-cpp-python's ``Llama`` writes JSON of a schema, through llgbench's sampler.

    python examples/llama_json.py                  a synthetic model: random weights, right JSON
    python examples/llama_json.py my-model.gguf    your own

The Python wheels of llama-cpp-python come without llama.cpp's llguidance sampler. This one is a
native ``llama_sampler`` as well, so it goes into any chain: here in front of the chain that
``Llama`` makes for itself, so that temperature, top-k, logits_processor and the rest work as ever.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llama_cpp import Llama
from llama_cpp._internals import LlamaSampler

from llgbench.engines import registry
from llgbench.inputs import variant
from llgbench.llama import bridge, synthetic
from llgbench.llama.sampler import GrammarSampler
from llgbench.llama.vocab import open_vocab

# Without the last line a model with random weights might stay in white space for ever.
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Lisbon", "Lima", "Lagos"]},
        "nights": {"type": "integer", "minimum": 1, "maximum": 14},
        "breakfast": {"type": "boolean"},
    },
    "required": ["city", "nights", "breakfast"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}


class GrammarLlama(Llama):
    """A ``Llama`` whose every completion follows a grammar."""

    def follow(self, tokenizer: Any, grammar: str) -> None:
        """Take the grammar that every completion from now on must follow."""
        self.tokenizer_and_grammar = (tokenizer, grammar)

    def _init_sampler(self, *arguments: Any, **options: Any) -> LlamaSampler:
        usual: LlamaSampler = super()._init_sampler(*arguments, **options)
        self.grammar = GrammarSampler(*self.tokenizer_and_grammar)
        self.grammar.put_before(usual)  # which frees it
        return usual


def main() -> None:
    """Write one object and check it."""
    name = sys.argv[1] if len(sys.argv) > 1 else "llama-spm"
    chosen = variant.get("greedy_tokenize")
    grammar = f"%llguidance {{}}\nstart: %json {json.dumps(SCHEMA)}"
    with open_vocab(name) as vocab:
        path = Path(name) if len(sys.argv) > 1 else synthetic.synthesize("nano", vocab)
        with bridge.build(registry.get("wheel"), vocab, chosen) as tokenizer:
            llama = GrammarLlama(str(path), n_ctx=512, n_threads=1, seed=7, verbose=False)
            llama.follow(tokenizer, grammar)
            completion = llama("Book a room: ", max_tokens=100)
            assert not isinstance(completion, Iterator)  # as it is where stream=True is given
            text = completion["choices"][0]["text"]
            dropped, error = llama.grammar.drops, llama.grammar.error
            llama.close()
    print(text)
    if dropped:
        sys.exit(f"the grammar was dropped: {error}")
    json.loads(text)


if __name__ == "__main__":
    main()
