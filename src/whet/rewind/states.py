"""What is recorded of one path, and the limits of what is.

Paths are relative to the workspace, with `/`, as Python decodes file names: every sequence of bytes survives.
"""

from __future__ import annotations

import os
import stat
from typing import Literal

import msgspec

Kind = Literal["file", "folder", "link", "left_out"]
Stamp = tuple[int, int, int, int]
"""Size, mtime and ctime in nanoseconds, inode: while they are the same, so is a file's content."""


class PathState(msgspec.Struct, frozen=True, gc=False):
    """What one path is. `content` is a file's SHA-256, where a link points to, or why it was left out; a link
    has no mode and a folder no size."""

    kind: Kind
    mode: int
    size: int
    content: bytes


class Known(msgspec.Struct, frozen=True, gc=False):
    """A state and what told it from others when it was read; None where the next look must read again."""

    state: PathState
    stamp: Stamp | None


Tree = dict[str, dict[str, Known]]
"""A workspace in memory: by folder, then by name. The workspace itself is the folder ""."""


class RecordLimits(msgspec.Struct, frozen=True):
    """What is recorded at most: bytes of one file, bytes in all that one workspace takes, files and folders
    of one workspace, days that a record is kept."""

    file_bytes: int = 50_000_000
    total_bytes: int = 2_000_000_000
    paths: int = 200_000
    days: int = 30


def joined(folder: str, name: str) -> str:
    """Give the path of `name` in `folder`."""
    return f"{folder}/{name}" if folder else name


def split(path: str) -> tuple[str, str]:
    """Give a path's folder and name."""
    folder, _, name = path.rpartition("/")
    return folder, name


def shown(path: str) -> str:
    """Give a path as text that can be printed and sent: bytes that are no UTF-8 are spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def stamp_of(seen: os.stat_result) -> Stamp:
    """Give what tells this state of a file from others."""
    return seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino


def mode_of(seen: os.stat_result) -> int:
    """Give the permission bits."""
    return stat.S_IMODE(seen.st_mode)


def left_out(why: str, seen: os.stat_result) -> PathState:
    """Give the state of what is there and not recorded; a change of it is still seen."""
    told = f"{why}|{seen.st_ino}.{seen.st_size}.{seen.st_mtime_ns}"
    return PathState("left_out", mode_of(seen), seen.st_size, os.fsencode(told))


def why_left_out(state: PathState) -> str:
    """Give the reason in words."""
    return os.fsdecode(state.content).partition("|")[0]


def is_work(path: str) -> bool:
    """Whether a file is more than a by-product, as caches are and what tools keep in hidden folders."""
    return not any(part.startswith(".") or part == "__pycache__" for part in path.split("/"))
