"""A caller's connection, for code that works or waits for the caller and must stop when it is cut."""

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

    def stop_listening(self, ring: Callable[[], object]) -> None:
        """Stop calling `ring`."""
        self._rings.discard(ring)

    def cut(self) -> None:
        """Record that the caller has hung up, and call all listeners."""
        self.is_cut: bool = True
        for ring in tuple(self._rings):
            ring()


def connection_of(scope: MutableMapping[str, Any]) -> WebConnection:
    """Return the caller's connection, which `protocol.py` puts into the scope."""
    return cast("WebConnection", scope["extensions"]["whet.line"])
