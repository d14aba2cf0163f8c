"""A C handle with one owner."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self


class Handle:
    """A C handle, freed once: by ``close()``, or at the end of a ``with``."""

    _pointer: Any = None

    def close(self) -> None:
        """Free the handle; a second call does nothing."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            self._free(pointer)

    def _free(self, pointer: Any) -> None:
        raise NotImplementedError

    @property
    def pointer(self) -> Any:
        """The C pointer.

        Raises:
            ValueError: the handle is closed.
        """
        if self._pointer is None:
            raise ValueError(f"{type(self).__name__} is closed")
        return self._pointer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # At exit the system takes all back, and what close() needs may be gone already.
        if sys is not None and not sys.is_finalizing():
            self.close()
