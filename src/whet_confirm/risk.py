"""Risk readings of a request's details: how dangerous its commands are, and why.

The service does not interpret shell commands itself. The program that starts it may supply a reader, which
each reading names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from whet_confirm.records import ConfirmRequest
from whet_confirm.requests import decode_details

MAX_READ_CHARS = 32 * 1024
_CACHE_SIZE = 1024


class RiskReading(msgspec.Struct, frozen=True):
    """One reading. `reasons` are texts for a person, `by` names the reader."""

    level: Literal["safe", "normal", "dangerous", "unread"]
    reasons: tuple[str, ...] = ()
    by: str = "Whet"

    @property
    def line(self) -> str:
        """The reading as one line."""
        if self.level == "dangerous":
            return f"Dangerous, as {self.by} reads the command: {'; '.join(self.reasons)}"
        if self.level == "unread":
            return f"{self.by} has not read it: it is too long"
        return f"{self.by} has read the command and found nothing dangerous in it"

    @property
    def is_alarming(self) -> bool:
        """Whether the request must be looked at by itself."""
        return self.level in ("dangerous", "unread")


RiskReader = Callable[[Mapping[str, Any]], RiskReading | None]
"""Reads details. Returns None if they contain no command."""


class RiskReadings:
    """A cache of readings, one for each version of a request. Without a reader there are none."""

    def __init__(self) -> None:
        self.reader: RiskReader | None = None
        self._readings: dict[str, RiskReading | None] = {}

    def knows(self, request: ConfirmRequest) -> bool:
        """Return whether this version was read before."""
        return request.digest in self._readings

    def read(self, request: ConfirmRequest) -> RiskReading | None:
        """Return the reading of a request's details, or None if they contain no command."""
        if self.reader is None:
            return None
        if len(request.details_json) > MAX_READ_CHARS:
            return RiskReading("unread")
        if not self.knows(request):
            if len(self._readings) >= _CACHE_SIZE:
                self._readings.clear()
            self._readings[request.digest] = self.reader(decode_details(request.details_json))
        return self._readings[request.digest]
