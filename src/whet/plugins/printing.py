"""Send plugins' printed output to the log: standard output belongs to the program, and another program may
read it.

While plugins are loaded, `sys.stdout` is replaced. Output that is written while plugin code is called, or
in any thread but the main one, counts as a plugin's; other output passes.
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
    """Standard output without plugins' lines. Other attributes are those of the real one."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self._rest = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Write the text, or log it if it is a plugin's."""
        if not _inside.get() and threading.current_thread() is threading.main_thread():
            return self.real.write(text)
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
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
    stand_in: Any = SharedStdout(real)
    sys.stdout = stand_in

    def undo() -> None:
        if sys.stdout is stand_in:
            sys.stdout = real

    return undo
