"""The peak memory of this very program.

`ru_maxrss` won't do: a program that was forked from a large process keeps that one's peak across exec.
"""

from pathlib import Path


def peak_mb() -> float:
    """Peak resident megabytes since this program's exec, as proc(5) gives it (VmHWM)."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM in /proc/self/status")
