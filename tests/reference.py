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
# What a set of the chart was made by: ignored bytes, and those of the terminal after them.
Lexeme = tuple[bytes, bytes]


class Grammar:
    """Rules over terminals, ``start`` among them; ``skip`` may stand after any terminal.

    Of the rules and terminals in ``captured`` the bytes are captured; their names are lower case.
    """

    def __init__(
        self,
        rules: Rules,
        terminals: Mapping[str, Terminal],
        skip: Terminal | None = None,
        captured: frozenset[str] = frozenset(),
    ) -> None:
        self.rules, self.terminals, self.captured = rules, dict(terminals), captured
        if skip is not None:
            self.terminals["%ignore"] = skip
        self._after: dict[tuple[Chart, frozenset[str]], Chart] = {}

    def to_lark(self) -> str:
        lines = []
        for name, alternatives in self.rules.items():
            capture = "[capture]" if name in self.captured else ""
            lines.append(
                f"{name}{capture}: " + " | ".join(" ".join(a) or '""' for a in alternatives)
            )
        for name, terminal in self.terminals.items():
            pattern = f"/{to_pattern(terminal.regex)}/"
            if name == "%ignore":
                lines.append(f"%ignore {pattern}")
            else:
                attributes = [f'suffix="{terminal.suffix}"'] if terminal.lazy else []
                attributes += ["capture"] if name in self.captured else []
                inner = f"[{', '.join(attributes)}]" if attributes else ""
                lines.append(f"{name}{inner}: {pattern}")
        return "\n".join(lines) + "\n"

    def start(self) -> State:
        chart = (self._close((), {("start", a, 0, 0) for a in range(len(self.rules["start"]))}),)
        return self.reading(chart)

    def reading(
        self, chart: Chart, lexemes: tuple[Lexeme, ...] = (), skipped: bytes = b""
    ) -> State:
        """Return the state in which a lexeme begins."""
        allowed = self._next_symbols(chart) & self.terminals.keys()
        # What is ignored is so after a terminal, and where another can follow.
        if "%ignore" in self.terminals and len(chart) > 1 and allowed:
            allowed |= {"%ignore"}
        lexer = tuple((name, self.terminals[name].whole) for name in sorted(allowed))
        return State(self, chart, lexer, lexemes, skipped)

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
        lexemes: one for each set of the chart, but for the first.
        skipped: the ignored bytes since the last of them.
        data: the current lexeme's bytes.
        match: the newest accepting position in it, as a length and the terminals that match.
    """

    grammar: Grammar
    chart: Chart
    lexer: tuple[tuple[str, Regex], ...]
    lexemes: tuple[Lexeme, ...] = ()
    skipped: bytes = b""
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
            return self._after(lazy, data)
        match = (len(data), frozenset(matches)) if matches else self.match
        return State(self.grammar, self.chart, lexer, self.lexemes, self.skipped, data, match)

    def read(self, data: bytes) -> State | None:
        state: State | None = self
        for byte in data:
            if state is None:
                return None
            state = state.step(byte)
        return state

    def accepts(self) -> bool:
        """Whether the input may end here."""
        state = self.ended()
        return state is not None and self.grammar.is_complete(state.chart)

    def ended(self) -> State | None:
        """Return the state at the end of input, all of it in lexemes; None if it cannot end."""
        state: State | None = self
        while state is not None and state.data:
            state = state._fall_back(state.data)
        return state

    def captures(self) -> set[tuple[str, bytes]]:
        """Return what all that the chart has found, in the parse or beside it, captures."""
        found = set()
        for here, items in enumerate(self.chart):
            for rule, a, dot, origin in items:
                symbols = self.grammar.rules[rule][a]
                before = symbols[dot - 1] if dot else ""
                if before in self.grammar.captured & self.grammar.terminals.keys():
                    skipped, data = self.lexemes[here - 1]
                    suffix = self.grammar.terminals[before].suffix.encode()
                    # To llguidance a captured terminal is a rule, and begins with what is ignored.
                    found.add((before, data.removesuffix(suffix) if suffix else skipped + data))
                if dot == len(symbols) and rule in self.grammar.captured:
                    parts = self.lexemes[origin:here]
                    found.add((rule, b"".join(skipped + data for skipped, data in parts)))
        return found

    def _after(self, matches: frozenset[str], data: bytes) -> State:
        """Return the state after a lexeme."""
        chart = self.grammar.consume(self.chart, matches)
        if "%ignore" in matches:
            return self.grammar.reading(chart, self.lexemes, self.skipped + data)
        return self.grammar.reading(chart, (*self.lexemes, (self.skipped, data)))

    def _fall_back(self, data: bytes) -> State | None:
        """End the lexeme at its newest accepting position; read the rest of ``data`` again."""
        if self.match is None:
            return None
        length, matches = self.match
        return self._after(matches, data[:length]).read(data[length:])
