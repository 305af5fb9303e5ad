"""Cache that no sandbox works, in Whet's home, so that a start can report it without probing.

Only that result is stored, with the facts it depends on: kernel, boot, user and bubblewrap's program. This
module imports little because every start reads the cache.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILE = "no-sandbox.txt"
OPEN = "commands run with all your rights, and Whet judges only their text"
"""What the lack of a sandbox means, for a person."""
OFF = f"no sandbox: sandbox.mode is off; {OPEN}"


def write_status(home: Path, line: str) -> None:
    """Record that no sandbox works, or remove the record if `line` is empty. A write error is ignored; then
    the next start probes again."""
    try:
        if line:
            (home / FILE).write_text(f"{_fingerprint()}\n{line}\n", "utf-8")
        else:
            (home / FILE).unlink(missing_ok=True)
    except OSError:
        return


def read_status(mode: str, home: Path) -> str:
    """Return the line that a start reports if only the gate protects, or an empty string if a sandbox works
    or none was tried yet."""
    if mode == "off":
        return OFF
    try:
        fingerprint, _, line = (home / FILE).read_text("utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return ""
    return line.strip() if fingerprint == _fingerprint() else ""


def _fingerprint() -> str:
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
