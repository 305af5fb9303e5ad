"""A caller's connection, for those who work or wait on the caller's behalf and stop when it is cut."""

from __future__ import annotations

from collections.abc import Callable


class WebConnection:
    """One connection. `is_cut`: the caller has hung up."""

    __slots__ = ("_rings", "is_cut")

    def __init__(self) -> None:
        self.is_cut = False
        self._rings: set[Callable[[], None]] = set()

    def listen(self, ring: Callable[[], None]) -> None:
        """Call `ring` when the caller hangs up."""
        self._rings.add(ring)

    def forget(self, ring: Callable[[], None]) -> None:
        """Do not call it any more."""
        self._rings.discard(ring)

    def cut(self) -> None:
        """The caller has hung up."""
        self.is_cut: bool = True
        for ring in tuple(self._rings):
            ring()
