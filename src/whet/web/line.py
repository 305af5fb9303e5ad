"""A caller's connection, for those who work or wait on the caller's behalf and stop when it is cut."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, cast


class WebConnection:
    """One connection. `is_cut`: the caller has hung up."""

    __slots__ = ("_rings", "is_cut")

    def __init__(self) -> None:
        self.is_cut = False
        self._rings: set[Callable[[], object]] = set()

    def listen(self, ring: Callable[[], object]) -> None:
        """Call `ring` when the caller hangs up."""
        self._rings.add(ring)

    def forget(self, ring: Callable[[], object]) -> None:
        """Do not call it any more."""
        self._rings.discard(ring)

    def cut(self) -> None:
        """The caller has hung up."""
        self.is_cut: bool = True
        for ring in tuple(self._rings):
            ring()


def line_of(scope: MutableMapping[str, Any]) -> WebConnection:
    """Give the caller's connection, which `protocol.py` puts into the scope."""
    return cast("WebConnection", scope["extensions"]["whet.line"])
