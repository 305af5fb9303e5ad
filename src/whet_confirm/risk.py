"""Risk readings of a request's details: how dangerous its commands are, and why.

The service can't interpret shell commands itself; the program that starts it may supply a reader. The
reading names its source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec


class RiskReading(msgspec.Struct, frozen=True):
    """One reading. `reasons` are texts for a person, `by` names the reader."""

    level: Literal["safe", "normal", "dangerous"]
    reasons: tuple[str, ...] = ()
    by: str = "Whet"

    @property
    def line(self) -> str:
        """The reading as one line."""
        if self.level == "dangerous":
            return f"Dangerous, as {self.by} reads the command: {'; '.join(self.reasons)}"
        return f"{self.by} has read the command and found nothing dangerous in it"


RiskReader = Callable[[Mapping[str, Any]], RiskReading | None]
"""Reads details. Returns None if they contain no command."""
