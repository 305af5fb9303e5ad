"""A client's connection, for code that works for the client and must stop when it hangs up."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, cast


class WebConnection:
    """One connection. `is_cut`: the client has hung up."""

    __slots__ = ("_listeners", "is_cut")

    def __init__(self) -> None:
        self.is_cut = False
        self._listeners: set[Callable[[], object]] = set()

    def listen(self, listener: Callable[[], object]) -> None:
        """Call `listener` when the client hangs up."""
        self._listeners.add(listener)

    def stop_listening(self, listener: Callable[[], object]) -> None:
        """Stop calling `listener`."""
        self._listeners.discard(listener)

    def cut(self) -> None:
        """Record that the client has hung up, and call all listeners."""
        self.is_cut: bool = True
        for listener in tuple(self._listeners):
            listener()


def connection_of(scope: MutableMapping[str, Any]) -> WebConnection:
    """Return the client's connection, which `protocol.py` puts into the scope."""
    return cast("WebConnection", scope["extensions"]["whet.line"])
