"""Detect whether this machine slept or changed its network; both leave dead, silent connections.

Sleep is wall time that the monotonic clock did not count (Linux, macOS). A change of network is a
different local address for a target: the kernel's routing table is read, and no packet is sent.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Literal

ANYWHERE = ("192.0.2.1", 9)  # a reserved address (RFC 5737), reached by the default route
SLEPT_S = 5.0
News = Literal["", "resumed", "network"]


def source_address(target: tuple[str, int]) -> str:
    """Return the local address of packets to `target`, or an empty string if there is no route."""
    family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return ""


class MachineWatch:
    """Detects sleep and a change of network between two calls of `poll`. The clocks are injectable."""

    def __init__(
        self,
        *,
        wall_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
        source: Callable[[], str] = lambda: source_address(ANYWHERE),
    ) -> None:
        self._wall_s, self._monotonic_s, self._source = wall_s, monotonic_s, source
        self._offset_s = wall_s() - monotonic_s()
        self._address = source()

    def poll(self) -> News:
        """Return the change since the last call: "resumed" after sleep, "network", or "". A lost network is
        reported only once there is one again."""
        offset_s = self._wall_s() - self._monotonic_s()
        has_slept, self._offset_s = offset_s - self._offset_s > SLEPT_S, offset_s
        before, self._address = self._address, self._source()
        if has_slept:
            return "resumed"
        return "network" if self._address and self._address != before else ""
