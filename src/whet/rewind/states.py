"""The recorded state of one path, and the limits of recording.

Paths are relative to the workspace, with `/`, decoded as Python decodes file names, so every byte sequence
is preserved.
"""

from __future__ import annotations

import os
import stat
from typing import Literal

import msgspec

from whet.late import late_pattern

_CONTROLS = late_pattern(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
Kind = Literal["file", "folder", "link", "left_out"]
Stamp = tuple[int, int, int, int]
"""Size, mtime and ctime in nanoseconds, inode. While they are equal, so is a file's content."""


class PathState(msgspec.Struct, frozen=True, gc=False):
    """The state of one path.

    `content` is a file's SHA-256, a symlink's target, or the reason why it was left out. Symlinks have
    mode 0 and folders have size 0.
    """

    kind: Kind
    mode: int
    size: int
    content: bytes


class KnownState(msgspec.Struct, frozen=True, gc=False):
    """A state and its stamp when it was read. A stamp of None makes the next scan read it again."""

    state: PathState
    stamp: Stamp | None


Tree = dict[str, dict[str, KnownState]]
"""A workspace in memory: by folder, then by name. The workspace itself is the folder ""."""


class RecordLimits(msgspec.Struct, frozen=True):
    """The limits of recording.

    Bytes per file, total bytes and number of paths per workspace, and days until a record is deleted.
    """

    file_bytes: int = 50_000_000
    total_bytes: int = 2_000_000_000
    paths: int = 200_000
    days: int = 30


def join_path(folder: str, name: str) -> str:
    """Return the path of `name` in `folder`."""
    return f"{folder}/{name}" if folder else name


def split_path(path: str) -> tuple[str, str]:
    """Return a path's folder and name."""
    folder, _, name = path.rpartition("/")
    return folder, name


def printable_path(path: str) -> str:
    """Return a path as one line of text. Control characters and bytes that are not UTF-8 are escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return text if text.isprintable() else _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


def make_stamp(status: os.stat_result) -> Stamp:
    """Return the stamp that identifies this state of a file."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def read_mode(status: os.stat_result) -> int:
    """Return the permission bits."""
    return stat.S_IMODE(status.st_mode)


def make_left_out(why: str, status: os.stat_result) -> PathState:
    """Return the state of a path that is not recorded. Later changes of it are still noticed."""
    text = f"{why}|{status.st_ino}.{status.st_size}.{status.st_mtime_ns}"
    return PathState("left_out", read_mode(status), status.st_size, os.fsencode(text))


def why_left_out(state: PathState) -> str:
    """Return the reason as text."""
    return os.fsdecode(state.content).partition("|")[0]


def is_work_file(path: str) -> bool:
    """Return whether a file is not a by-product, such as caches and files in hidden folders."""
    return not any(part.startswith(".") or part == "__pycache__" for part in path.split("/"))
