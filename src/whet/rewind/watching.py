"""Hears from the kernel in which folders something changed since the last look, so that a look can be short.

Linux only, and only for file systems whose changes all go through this kernel. A help, not a proof: what
a program writes through a memory map is heard when it lets go of the file, and a write through another name
of a file, outside the workspace, is not heard. So whole looks still happen (`Workspace.look`), and whatever
is odd here asks for one.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_EVENT = struct.Struct("iIII")
_BUFFER_BYTES = 65_536
_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0xC0, 0x100, 0x200, 0x400, 0x800
_WANTED = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_ONLY_FOLDERS = 0x1000000
_UNMOUNTED, _OVERFLOW, _IS_FOLDER = 0x2000, 0x4000, 0x40000000
_UNCLEAR = _UNMOUNTED | _OVERFLOW | _IS_FOLDER | _DELETE_SELF | _MOVE_SELF
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay", "zfs", "bcachefs"})
_MOST_FOLDERS = 50_000


class FolderWatch:
    """The folders of one workspace. `begin` and `add` at a whole look, `changed` from then on."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._fd = -1
        self._folders: dict[int, str] = {}
        self._libc: ctypes.CDLL | None = None
        self._works = sys.platform == "linux" and _is_local(root)

    def begin(self) -> None:
        """Forget everything and begin anew; the look that follows names every folder."""
        self.close()
        if not self._works:
            return
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._works = self._fd >= 0

    def add(self, folder: str, handle: int) -> None:
        """Hear of changes in a folder, which is open, from now on: before it is listed."""
        if self._fd < 0 or self._libc is None:
            return
        path = f"/proc/self/fd/{handle}".encode()
        number = self._libc.inotify_add_watch(self._fd, path, _WANTED | _ONLY_FOLDERS)
        if number < 0 or len(self._folders) >= _MOST_FOLDERS:
            self._works = False  # the system's limit: this workspace is looked at whole each time
            self.close()
        else:
            self._folders[number] = folder

    def changed(self) -> set[str] | None:
        """Give the folders in which files changed since the last call; None: look at everything."""
        if self._fd < 0:
            return None
        found: set[str] = set()
        while True:
            try:
                data = os.read(self._fd, _BUFFER_BYTES)
            except BlockingIOError:
                return found
            except OSError:
                return None
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                folder = self._folders.get(number)
                if mask & _UNCLEAR or folder is None:
                    self.close()
                    return None
                found.add(folder)

    def close(self) -> None:
        """Hear no more."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._folders.clear()


def _is_local(root: str) -> bool:
    """Whether all changes of a folder go through this kernel."""
    try:
        device = os.stat(root).st_dev
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                fields, _, rest = line.partition(" - ")
                if fields.split()[2] == f"{os.major(device)}:{os.minor(device)}":
                    return rest.split()[0] in _LOCAL
    except (OSError, IndexError):
        return False
    return False
