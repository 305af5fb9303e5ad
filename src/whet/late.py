"""Regular expressions that are compiled when they are first used: a process uses few of those that it loads.

Compiling one costs 0.1 to 4 ms of CPU; those of the gate alone took 25 ms of a session's first command.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def late_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Give a pattern to search and match with. One that can't be compiled raises at its first use."""
    return cast("re.Pattern[AnyStr]", LatePattern(text, flags))


class LatePattern:
    """Stands for a compiled pattern: what is asked of it once is its own attribute from then on."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._made_of = (text, flags)

    def __getattr__(self, name: str) -> Any:
        """Give what the compiled pattern has by this name."""
        text, flags = self._made_of
        found = getattr(re.compile(text, flags), name)
        setattr(self, name, found)
        return found
