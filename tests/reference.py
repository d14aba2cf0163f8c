"""A reference for the greedy lexeme fallback: small, slow, and written from the rule alone.

The rule: repeat maximal munch of the combined lexer, remembering the newest accepting position;
when no byte can extend the lexeme, it ends there, the parser advances by all the terminals that
match, and the bytes after it are read again in the new context. :class:`State` does this byte by
byte, so that it can say of any prefix whether it is alive and whether it is complete.

Regular expressions are matched by derivatives; the parser is Earley's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar


class Regex:
    """A regular expression; equal ones are one object, so that caches hash them by identity."""

    _all: ClassVar[dict[tuple[object, ...], Regex]] = {}
    kind: str
    parts: tuple[Any, ...]

    def __new__(cls, kind: str, *parts: Any) -> Regex:
        made = cls._all.get((kind, *parts))
        if made is None:
            made = cls._all[kind, *parts] = super().__new__(cls)
            made.kind, made.parts = kind, parts
        return made

    def __repr__(self) -> str:
        return to_pattern(self)


VOID = Regex("or", frozenset())  # matches nothing
EMPTY = Regex("empty")


def one_of(chars: str) -> Regex:
    return Regex("bytes", frozenset(chars.encode()))


def cat(*parts: Regex) -> Regex:
    result = EMPTY
    for part in reversed(parts):
        if part is VOID or result is VOID:
            return VOID
        if part is not EMPTY:
            result = part if result is EMPTY else Regex("cat", part, result)
    return result


def either(*parts: Regex) -> Regex:
    flat: set[Regex] = set()
    for part in parts:
        flat |= part.parts[0] if part.kind == "or" else {part}
    return flat.pop() if len(flat) == 1 else Regex("or", frozenset(flat))


def star(a: Regex) -> Regex:
    return EMPTY if a in (VOID, EMPTY) else Regex("star", a)


def times(a: Regex, n: int) -> Regex:
    return cat(*[a] * n)


def literal(text: str) -> Regex:
    return cat(*map(one_of, text))


@cache
def nullable(regex: Regex) -> bool:
    match regex.kind, regex.parts:
        case "cat", (a, b):
            return nullable(a) and nullable(b)
        case "or", (parts,):
            return any(map(nullable, parts))
    return regex.kind in ("empty", "star")


@cache
def derivative(regex: Regex, byte: int) -> Regex:
    """Return what must follow for the regex to match, once ``byte`` was read."""
    match regex.kind, regex.parts:
        case "bytes", (accepted,):
            return EMPTY if byte in accepted else VOID
        case "cat", (a, b):
            first = cat(derivative(a, byte), b)
            return either(first, derivative(b, byte)) if nullable(a) else first
        case "or", (parts,):
            return either(*(derivative(part, byte) for part in parts))
        case "star", (a,):
            return cat(derivative(a, byte), regex)
    return VOID


def to_pattern(regex: Regex) -> str:
    """Write the regex as one that llguidance reads; only letters, digits and spaces."""
    match regex.kind, regex.parts:
        case "bytes", (accepted,):
            chars = "".join(map(chr, sorted(accepted)))
            return chars if len(chars) == 1 else f"[{chars}]"
        case "cat", (a, b):
            return to_pattern(a) + to_pattern(b)
        case "or", (parts,):
            return f"({'|'.join(sorted(map(to_pattern, parts)))})"
        case "star", (a,):
            return f"({to_pattern(a)})*"
    return "()"


@dataclass(frozen=True)
class Terminal:
    """A terminal; one with a suffix is lazy: it ends with the suffix, as soon as it can."""

    regex: Regex
    suffix: str = ""

    @property
    def whole(self) -> Regex:
        return cat(self.regex, literal(self.suffix))

    @property
    def lazy(self) -> bool:
        return bool(self.suffix)


Rules = Mapping[str, tuple[tuple[str, ...], ...]]
# An Earley item: rule, alternative, dot, and the set it began in.
Item = tuple[str, int, int, int]
Chart = tuple[frozenset[Item], ...]


class Grammar:
    """Rules over terminals, ``start`` among them; ``skip`` may stand after any terminal."""

    def __init__(
        self, rules: Rules, terminals: Mapping[str, Terminal], skip: Terminal | None = None
    ) -> None:
        self.rules, self.terminals = rules, dict(terminals)
        if skip is not None:
            self.terminals["%ignore"] = skip
        self._after: dict[tuple[Chart, frozenset[str]], Chart] = {}

    def to_lark(self) -> str:
        lines = []
        for name, alternatives in self.rules.items():
            lines.append(f"{name}: " + " | ".join(" ".join(a) or '""' for a in alternatives))
        for name, terminal in self.terminals.items():
            pattern = f"/{to_pattern(terminal.regex)}/"
            if name == "%ignore":
                lines.append(f"%ignore {pattern}")
            elif terminal.lazy:
                lines.append(f'{name}[suffix="{terminal.suffix}"]: {pattern}')
            else:
                lines.append(f"{name}: {pattern}")
        return "\n".join(lines) + "\n"

    def start(self) -> State:
        chart = (self._close((), {("start", a, 0, 0) for a in range(len(self.rules["start"]))}),)
        return self.reading(chart)

    def reading(self, chart: Chart) -> State:
        """Return the state in which a lexeme begins."""
        allowed = self._next_symbols(chart) & self.terminals.keys()
        # What is ignored is so after a terminal, and where another can follow.
        if "%ignore" in self.terminals and len(chart) > 1 and allowed:
            allowed |= {"%ignore"}
        lexer = tuple((name, self.terminals[name].whole) for name in sorted(allowed))
        return State(self, chart, lexer)

    def consume(self, chart: Chart, matches: frozenset[str]) -> Chart:
        if "%ignore" in matches:
            return chart
        if (chart, matches) not in self._after:
            kernel = {
                (rule, a, dot + 1, origin)
                for rule, a, dot, origin in chart[-1]
                if self.rules[rule][a][dot : dot + 1] and self.rules[rule][a][dot] in matches
            }
            self._after[chart, matches] = (*chart, self._close(chart, kernel))
        return self._after[chart, matches]

    def is_complete(self, chart: Chart) -> bool:
        return any(
            rule == "start" and dot == len(self.rules[rule][a]) and origin == 0
            for rule, a, dot, origin in chart[-1]
        )

    def _next_symbols(self, chart: Chart) -> set[str]:
        dots = ((self.rules[rule][a], dot) for rule, a, dot, _ in chart[-1])
        return {symbols[dot] for symbols, dot in dots if dot < len(symbols)}

    def _close(self, chart: Chart, kernel: Iterable[Item]) -> frozenset[Item]:
        here, items = len(chart), set(kernel)
        while True:
            new: set[Item] = set()
            for rule, a, dot, origin in items:
                symbols = self.rules[rule][a]
                if dot == len(symbols):
                    for other, b, at, begin in chart[origin] if origin < here else items:
                        if self.rules[other][b][at : at + 1] == (rule,):
                            new.add((other, b, at + 1, begin))
                elif symbols[dot] in self.rules:
                    predicted = symbols[dot]
                    new |= {(predicted, b, 0, here) for b in range(len(self.rules[predicted]))}
            if new <= items:
                return frozenset(items)
            items |= new


@dataclass(frozen=True)
class State:
    """What was read: lexemes given to the parser, and the bytes of one that is not complete.

    Attributes:
        chart: the parser, before the current lexeme.
        lexer: the terminals still alive, with what each must still match.
        data: the current lexeme's bytes.
        match: the newest accepting position in it, as a length and the terminals that match.
    """

    grammar: Grammar
    chart: Chart
    lexer: tuple[tuple[str, Regex], ...]
    data: bytes = b""
    match: tuple[int, frozenset[str]] | None = None

    def step(self, byte: int) -> State | None:
        """Return the state after another byte; None where no reading is alive."""
        data = self.data + bytes([byte])
        moved = ((name, derivative(regex, byte)) for name, regex in self.lexer)
        lexer = tuple((name, regex) for name, regex in moved if regex is not VOID)
        if not lexer:
            return self._fall_back(data)
        matches = {name for name, regex in lexer if nullable(regex)}
        lazy = frozenset(name for name in matches if self.grammar.terminals[name].lazy)
        if lazy:
            return self.grammar.reading(self.grammar.consume(self.chart, lazy))
        match = (len(data), frozenset(matches)) if matches else self.match
        return State(self.grammar, self.chart, lexer, data, match)

    def read(self, data: bytes) -> State | None:
        state: State | None = self
        for byte in data:
            if state is None:
                return None
            state = state.step(byte)
        return state

    def accepts(self) -> bool:
        """Whether the input may end here."""
        if not self.data:
            return self.grammar.is_complete(self.chart)
        state = self._fall_back(self.data)
        return state is not None and state.accepts()

    def _fall_back(self, data: bytes) -> State | None:
        """End the lexeme at its newest accepting position; read the rest of ``data`` again."""
        if self.match is None:
            return None
        length, matches = self.match
        return self.grammar.reading(self.grammar.consume(self.chart, matches)).read(data[length:])
