"""Reports to the operator: channels' faults at the terminal, and at most one unserved request a minute."""

from __future__ import annotations

from collections.abc import Callable

_LOG_EVERY_S = 60.0
Report = Callable[[str], None]
"""Shows the operator one line."""


class ChannelFaults:
    """Reports when the fault of a channel begins, changes or ends.

    Without a `report` function it does nothing: the log and the page show the fault.
    """

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self._faults: dict[str, str] = {}

    def begin(self, channel: str, fault: str) -> None:
        """Report a fault, unless it was the last one reported of the channel."""
        if self._report is not None and self._faults.get(channel) != fault:
            self._faults[channel] = fault
            self._report(f"channel {channel} fails: {fault}. Try it: whet confirm try-channels")

    def end(self, channel: str) -> None:
        """Report that a channel works again after a fault."""
        if self._report is not None and self._faults.pop(channel, ""):
            self._report(f"channel {channel} works again")


class UnservedCount:
    """Counts the requests that no channel serves, so that a flood of them does not fill the log."""

    def __init__(self) -> None:
        self._count = 0
        self._next_s = 0.0

    def add(self, number: int, now_s: float) -> int:
        """Count requests. If it is time to log them, return their number since the last time, otherwise 0."""
        self._count += number
        if now_s < self._next_s or not self._count:
            return 0
        count, self._count = self._count, 0
        self._next_s = now_s + _LOG_EVERY_S
        return count
