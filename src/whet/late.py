"""Create values at their first use, because a process uses few of those that its modules define.

Compiling a regular expression costs 0.1 to 4 ms of CPU. Those of the approval gate alone took 25 ms of a
session's first command.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, AnyStr, Generic, TypeVar, cast

import msgspec

T = TypeVar("T")


class LatePart(msgspec.Struct, Generic[T]):
    """A value that is created at its first use; `created` is None before that."""

    create: Callable[[], T]
    created: T | None = None

    def get(self) -> T:
        """Return the value. The first call creates it."""
        if self.created is None:
            self.created = self.create()
        return self.created


def late_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that is compiled at its first use. An invalid one raises re.error then."""
    return cast("re.Pattern[AnyStr]", LatePattern(text, flags))


class LatePattern:
    """Act as a compiled pattern. Each attribute is stored on the object when it is first read."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._source = (text, flags)

    def __getattr__(self, name: str) -> Any:
        """Return the compiled pattern's attribute of this name."""
        text, flags = self._source
        value = getattr(re.compile(text, flags), name)
        setattr(self, name, value)
        return value
