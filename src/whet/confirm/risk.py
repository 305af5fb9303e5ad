"""What somebody who can read commands says of a request's details: how dangerous, and why.

The service can't read shell itself; whoever starts it may give it a reader. Whose reading it is, is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec


class RiskReading(msgspec.Struct, frozen=True):
    """One reading: `reasons` are words for a person, `by` says who read."""

    level: Literal["safe", "normal", "dangerous"]
    reasons: tuple[str, ...] = ()
    by: str = "Whet"

    @property
    def line(self) -> str:
        """The reading in a line."""
        if self.level == "dangerous":
            return f"Dangerous, as {self.by} reads the command: {'; '.join(self.reasons)}"
        return f"{self.by} has read the command and found nothing dangerous in it"


RiskReader = Callable[[Mapping[str, Any]], RiskReading | None]
"""Reads details; None where there is no command in them."""
