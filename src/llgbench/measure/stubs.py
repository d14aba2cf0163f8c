"""Stand-ins for Python's functions, so that a Python extension loads where there is no Python.

llguidance's wheel exports its C API from an extension module. The C API calls nothing of Python,
but the library asks the linker for Python's symbols when it is loaded.
"""

from __future__ import annotations

import struct
from pathlib import Path

from llgbench import files
from llgbench.errors import EngineError

_ELF_64 = b"\x7fELF\x02"
_SHT_DYNSYM = 11
_SECTION, _SYMBOL = 64, 24


def python_symbols(library: Path) -> list[str]:
    """Return the names that a library wants of Python, sorted.

    Raises:
        EngineError: the file cannot be read.
    """
    data = files.read(library, error=EngineError)
    try:
        return sorted(
            name for name in _undefined(data) if name.startswith(("Py", "_Py")) and name.isascii()
        )
    except struct.error:
        raise EngineError(f"{library}: the file is cut short") from None


def source(names: list[str]) -> str:
    """Return C that defines the names, each as a function that ends the process."""
    return "\n".join(
        [
            "#include <stdlib.h>",
            "#include <unistd.h>",
            "static void python(void) {",
            '    static const char why[] = "the engine calls Python in the middle of a count\\n";',
            "    if (write(2, why, sizeof why - 1)) _Exit(2);",
            "    _Exit(2);",
            "}",
            *(f'void {name}(void) __attribute__((alias("python")));' for name in names),
            "",
        ]
    )


def _undefined(data: bytes) -> list[str]:
    """Return the undefined dynamic symbols of a 64-bit ELF file; none of any other file."""
    if not data.startswith(_ELF_64):
        return []
    (table,) = struct.unpack_from("=Q", data, 40)
    size, count = struct.unpack_from("=HH", data, 58)
    sections = [
        struct.unpack_from("=IIQQQQIIQQ", data, table + at * size)
        for at in range(count)
        if size >= _SECTION
    ]
    found = []
    for _, kind, _, _, start, length, link, *_ in sections:
        if kind != _SHT_DYNSYM or link >= len(sections):
            continue
        strings = sections[link][4]
        for at in range(start, start + length, _SYMBOL):
            name, _, _, section = struct.unpack_from("=IBBH", data, at)
            if section == 0 and name:
                first = strings + name
                found.append(data[first : data.index(b"\0", first)].decode(errors="replace"))
    return found
