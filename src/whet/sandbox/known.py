"""What the last look for an engine found, kept in Whet's home so that a start can say it without looking.

Only "nothing holds" is kept, with what it was found with: the kernel and its start, the user, bubblewrap's
program. Imports next to nothing: every start asks.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILE = "no-sandbox.txt"
OFF = "no sandbox: sandbox.mode is off; only the gate's reading holds"


def keep(home: Path, line: str) -> None:
    """Note that nothing holds, or with "" that something does. What can't be written is looked for again."""
    try:
        if line:
            (home / FILE).write_text(f"{_found_with()}\n{line}\n", "utf-8")
        else:
            (home / FILE).unlink(missing_ok=True)
    except OSError:
        return


def unheld(mode: str, home: Path) -> str:
    """Give the line to say at a start where nothing holds but the gate's reading, "" where something does or
    nobody has looked yet."""
    if mode == "off":
        return OFF
    try:
        found_with, _, line = (home / FILE).read_text("utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return ""
    return line.strip() if found_with == _found_with() else ""


def _found_with() -> str:
    kernel = os.uname()
    parts = [kernel.sysname, kernel.release, kernel.machine, str(os.getuid())]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
    for folder in os.get_exec_path():
        try:
            state = os.stat(os.path.join(folder, "bwrap"))
        except OSError:
            continue
        parts.append(f"{state.st_size} {state.st_mtime_ns} {state.st_mode}")
        break
    return " ".join(parts)
