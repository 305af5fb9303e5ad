"""Find the folder a shell is in when it ends, and the exit codes of its last pipeline, which the shell's
own exit code hides: the shell reports both over a pipe that only this module reads.

A shell that execs another program, or whose exit trap the command sets, reports nothing.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from whet.late import late_pattern

_MOVES = late_pattern(r"(?<![\w./-])(?:cd|pushd|popd)(?![\w./-])")
_MAX_BYTES = 65_536


def may_move(text: str) -> bool:
    """Return whether a command may end in another folder than it began in: three shell builtins do that."""
    return _MOVES.search(text) is not None


def has_report(text: str) -> bool:
    """Return whether a command's end is worth a report: it may move, or has a pipe."""
    return "|" in text or may_move(text)


def report_end_folder(text: str) -> str:
    """Return shell text that runs the command and then writes two lines to the descriptor in `$1`: the exit
    codes of the last pipeline, and the folder."""
    # Added to the first line, so that line numbers in the shell's errors stay the same.
    report = r"builtin echo \"\${PIPESTATUS[*]}\"; builtin pwd -P"
    return f'trap "{{ {{ {report}; }} >&$1; }} 2>/dev/null" EXIT; shift; {text}'


class EndFolder:
    """One command's pipe. `write_fd` is for the command; this side closes it once the command has started.

    `pipeline` holds the exit codes of its last pipeline after `take`, empty for a command without a pipe.
    """

    def __init__(self) -> None:
        self.pipeline: tuple[int, ...] = ()
        self._read_fd, write_fd = os.pipe()
        self.write_fd: int = write_fd
        os.set_blocking(self._read_fd, False)

    def close_write_end(self) -> None:
        """Close this side's copy of the write end."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def take(self) -> Path | None:
        """Return the folder after the command's end, or None if the shell reported none. Closes the pipe."""
        data = b""
        if self._read_fd >= 0:
            with contextlib.suppress(OSError):
                data = os.read(self._read_fd, _MAX_BYTES)
        self.close()
        lines = os.fsdecode(data).splitlines()
        codes = lines[-2].split() if len(lines) > 1 else []
        if len(codes) > 1 and all(code.isdecimal() for code in codes):
            self.pipeline = tuple(map(int, codes))
        return Path(lines[-1]) if lines and lines[-1].startswith("/") else None

    def close(self) -> None:
        """Close the open ends. Can be called twice."""
        self.close_write_end()
        if self._read_fd >= 0:
            os.close(self._read_fd)
            self._read_fd = -1
