"""The entry point of the command line: a failure while it is imported ends in one line, too.

Packages that are missing or broken, or for which there is no memory, are imported within
:func:`main`. What runs before it is Python itself: where the interpreter cannot start
(PYTHONIOENCODING names an encoding that does not exist, less than about 14 MiB of address space),
Python reports it in its own words and with its own status, and no program can change that.
"""

import os

# As llgbench.output.EXIT_BAD_INPUT, which may be what cannot be imported.
_EXIT = 2


def main() -> None:
    """Run the command line; whatever goes wrong ends in one line and an exit status."""
    try:
        from llgbench.commands.cli import main as run

        run()
    except KeyboardInterrupt:
        _end("interrupted")
    except MemoryError:
        _end("out of memory at start; allow this process more (ulimit -v)")
    except ImportError as error:
        _end(f"a package is missing or broken: {error}; install llgbench again")
    except (OSError, RuntimeError, SystemError) as error:
        _end(f"cannot start: {error or type(error).__name__}")


def _end(message: str) -> None:
    """End at once: what Python does at its end may need what is missing."""
    try:
        os.write(2, f"llgbench: {' '.join(message.split())}\n".encode(errors="backslashreplace"))
    except OSError:  # nobody reads it
        pass
    finally:
        os._exit(_EXIT)


if __name__ == "__main__":
    main()
