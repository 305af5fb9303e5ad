"""The folder that a shell is in when it ends: it says so itself, over a pipe that nothing else reads.

A shell that becomes another program, or whose exit trap the command sets, says nothing.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from whet.late import late_pattern

_MOVES = late_pattern(r"(?<![\w./-])(?:cd|pushd|popd)(?![\w./-])")
_MOST_BYTES = 65_536


def may_move(text: str) -> bool:
    """Whether a command may end in another folder than it began in: three builtins of a shell do that."""
    return _MOVES.search(text) is not None


def telling(text: str) -> str:
    """Give shell text that does the same and then writes its folder to the descriptor that `$1` names."""
    # On the first line, so that the lines in a shell's errors keep their numbers.
    return f'trap "{{ builtin pwd -P >&$1; }} 2>/dev/null" EXIT; shift; {text}'


class EndFolder:
    """One command's pipe. `write_fd` is for the command, and this side closes it once that has started."""

    def __init__(self) -> None:
        self._read_fd, write_fd = os.pipe()
        self.write_fd: int = write_fd
        os.set_blocking(self._read_fd, False)

    def started(self) -> None:
        """Leave the writing end to the command."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def take(self) -> Path | None:
        """Give the folder after the command's end, None where it did not say; the pipe is closed then."""
        said = b""
        if self._read_fd >= 0:
            with contextlib.suppress(OSError):
                said = os.read(self._read_fd, _MOST_BYTES)
        self.close()
        lines = os.fsdecode(said).splitlines()
        return Path(lines[-1]) if lines and lines[-1].startswith("/") else None

    def close(self) -> None:
        """Close what is open. Callable twice."""
        self.started()
        if self._read_fd >= 0:
            os.close(self._read_fd)
            self._read_fd = -1
