"""Send plugins' printed output to the log, because another program may read our standard output.

`sys.stdout` is replaced while plugins are loaded. Output counts as a plugin's if plugin code is being
called, or in any thread but the main one. Other output passes.
"""

from __future__ import annotations

import contextvars
import logging
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from whet.log import mask

log: logging.Logger = logging.getLogger("whet.plugins")
_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("inside_plugin", default=False)
_MAX_CHARS = 2_000


@contextmanager
def by_plugin() -> Generator[None]:
    """Count output that is printed inside as a plugin's."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


class SharedStdout:
    """Standard output without plugins' lines. Its other attributes are those of `real`."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self._unfinished_line = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Write the text, or log it if it is a plugin's."""
        if not _inside.get() and threading.current_thread() is threading.main_thread():
            return self.real.write(text)
        with self._lock:
            *lines, self._unfinished_line = (self._unfinished_line + text).split("\n")
        for line in filter(str.strip, lines):
            log.info("a plugin printed: %s", mask(line)[:_MAX_CHARS])
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write line by line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def keep_off_stdout() -> Callable[[], None]:
    """Replace standard output. Returns the function that undoes it."""
    real = sys.stdout
    if isinstance(real, SharedStdout):
        return lambda: None
    shared: Any = SharedStdout(real)
    sys.stdout = shared

    def undo() -> None:
        if sys.stdout is shared:
            sys.stdout = real

    return undo
