"""Values that are made at first use: a process uses few of those that it loads.

Compiling a regular expression costs 0.1 to 4 ms of CPU; those of the gate alone took 25 ms of a session's
first command.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, AnyStr, Generic, TypeVar, cast

import msgspec

T = TypeVar("T")


class LatePart(msgspec.Struct, Generic[T]):
    """A part that is created on first use; `created` is None before that."""

    create: Callable[[], T]
    created: T | None = None

    def get(self) -> T:
        """Return the part, creating it if necessary."""
        if self.created is None:
            self.created = self.create()
        return self.created


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
