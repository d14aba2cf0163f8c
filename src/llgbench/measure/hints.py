"""Why a text of the user's own may not be in the grammar: the usual slips, named."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from llgbench.inputs.case import Case, Text


def hint(case: Case, text: Text, reject_at: int, special_tokens: Iterable[str]) -> str:
    """Return what to try, to stand behind a message; empty where nothing comes to mind.

    Args:
        case: gives the grammar.
        text: the text that it refuses.
        reject_at: offset of the first byte that cannot be consumed.
        special_tokens: names of the vocabulary's special tokens.
    """
    rest = text.data[reject_at:]
    if rest in (b"\n", b"\r\n"):
        return "; the text ends with a newline that the grammar does not have: remove it"
    if text.special_tokens == () and case.kind == "lark":
        for name in special_tokens:
            if name in case.source and _begins_in(text.data, name.encode(), reject_at):
                return f"; {name} is plain text here: --special-tokens reads it as the token"
    if case.kind == "json_schema" and _in_other_order(case.source, text.data):
        return "; its keys stand in another order than in the schema, and llguidance keeps to that"
    return ""


def _begins_in(data: bytes, name: bytes, reject_at: int) -> bool:
    """Return whether a name stands in the text at the refused byte, or around it."""
    return any(
        data.startswith(name, at) for at in range(max(0, reject_at - len(name) + 1), reject_at + 1)
    )


def _in_other_order(schema: str, data: bytes) -> bool:
    try:
        whole = json.loads(schema)
        return _differs(whole, json.loads(data), whole)
    except (ValueError, RecursionError):
        return False


def _differs(schema: Any, data: Any, whole: Any) -> bool:
    """Return whether any object has known keys in another order than its schema's properties."""
    for _ in range(8):  # a reference may lead to a reference, and in a circle
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            break
        schema = _resolved(schema["$ref"], whole)
    if not isinstance(schema, dict):
        return False
    if isinstance(data, list):
        return any(_differs(schema.get("items"), item, whole) for item in data)
    properties = schema.get("properties")
    if not isinstance(data, dict) or not isinstance(properties, dict):
        return False
    known = [key for key in data if key in properties]
    if known != [key for key in properties if key in data]:
        return True
    return any(_differs(properties[key], data[key], whole) for key in known)


def _resolved(reference: str, whole: Any) -> Any:
    """Return what a reference within the schema points to, None where to nothing."""
    found = whole
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            found = found.get(part) if isinstance(found, dict) else None
    return found
