"""llama.cpp's own grammars: JSON schemas as GBNF, by llama-cpp-python's converter."""

from __future__ import annotations

from llgbench.errors import GrammarError
from llgbench.files import one_line
from llgbench.llama.api import llama


def from_schema(schema: str) -> str:
    """Return the GBNF of a JSON schema, as llama-cpp-python makes it.

    Raises:
        GrammarError: the converter refuses the schema.
        UnavailableError: llama-cpp-python is not installed.
    """
    llama()
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        return str(json_schema_to_gbnf(schema))
    except RecursionError:
        raise GrammarError("llama.cpp's converter does not end: the schema is recursive") from None
    except Exception as why:  # the converter raises and asserts what it likes
        words = one_line(why) or type(why).__name__
        raise GrammarError(f"llama.cpp's converter refuses the schema: {words}") from None


def library() -> str:
    """Return the path of the libllama that llama-cpp-python has loaded."""
    llama()
    from llama_cpp import llama_cpp as c

    return str(c._lib._name)
