"""Regular expressions that are compiled at first use: a process uses few of those that it loads.

Compiling one costs 0.1 to 4 ms of CPU; those of the gate alone took 25 ms of a session's first command.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def late_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern to search and match with. An invalid one raises at its first use."""
    return cast("re.Pattern[AnyStr]", LatePattern(text, flags))


class LatePattern:
    """Acts as a compiled pattern. Each attribute is stored on the object when it is first read."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._made_of = (text, flags)

    def __getattr__(self, name: str) -> Any:
        """Return the compiled pattern's attribute of this name."""
        text, flags = self._made_of
        value = getattr(re.compile(text, flags), name)
        setattr(self, name, value)
        return value
