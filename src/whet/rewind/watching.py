"""Lists the folders that changed since the last scan, as inotify reports them, so that a scan can be short.

Linux only, and only for file systems whose changes all go through this kernel. The reports are not complete:
a write through a memory map is reported when the program closes the file, and a watched folder reports only
writes through its own names. So files with several names, of which package managers make thousands, are
watched themselves. `Workspace.scan` still makes full scans regularly, and whenever a report is unclear.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

import msgspec

from whet.rewind.states import join_path

_EVENT = struct.Struct("iIII")
_BUFFER_BYTES = 65_536
_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0xC0, 0x100, 0x200, 0x400, 0x800
_WANTED = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_WANTED_OF_FILES = _MODIFY | _ATTRIB | _CLOSE_WRITE
_ONLY_FOLDERS, _NO_LINKS = 0x1000000, 0x2000000
_UNMOUNTED, _OVERFLOW, _IGNORED, _IS_FOLDER = 0x2000, 0x4000, 0x8000, 0x40000000
_UNCLEAR = _UNMOUNTED | _OVERFLOW | _MOVE_SELF
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay", "zfs", "bcachefs"})
_MAX_FOLDERS = 50_000
_FILES_SHARE = 3  # the part of the user's watches that files may take: editors need some, too


class FolderChanges(msgspec.Struct, frozen=True):
    """Folders with changes, and new folders, which are not watched yet."""

    folders: set[str]
    made: set[str]


class FolderWatch:
    """The watched folders of one workspace. Call `begin` and `add` during a full scan, `read_changes`
    afterwards."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._fd = -1
        self._folders: dict[int, str] = {}
        self._files: dict[int, tuple[str, ...]] = {}
        self._max_files = 0
        self._libc: ctypes.CDLL | None = None
        self._works = sys.platform == "linux" and _is_local(root)

    def begin(self) -> None:
        """Prepare for a full scan, which adds every folder. Events received so far are kept."""
        if self._fd >= 0 or not self._works:
            return
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._works = self._fd >= 0
        self._max_files = _user_watches() // _FILES_SHARE

    def add(self, folder: str, handle: int) -> None:
        """Watch an open folder from now on. Call it before the folder is listed."""
        if self._fd < 0 or self._libc is None:
            return
        path = b"/proc/self/fd/%d" % handle
        number = self._libc.inotify_add_watch(self._fd, path, _WANTED | _ONLY_FOLDERS)
        if number < 0 or len(self._folders) >= _MAX_FOLDERS:
            self._works = False  # the system's limit: this workspace always gets full scans
            self.close()
        else:
            self._folders[number] = folder

    def add_file(self, folder: str, handle: int, name: str) -> bool:
        """Watch a file, and report writes through any of its names as changes of `folder`, which is open.

        Returns False if the system doesn't allow it: the folder must then be listed at every scan.
        """
        if self._fd < 0 or self._libc is None or len(self._files) >= self._max_files:
            return False
        path = b"/proc/self/fd/%d/%b" % (handle, os.fsencode(name))
        number = self._libc.inotify_add_watch(self._fd, path, _WANTED_OF_FILES | _NO_LINKS)
        if number < 0:
            if ctypes.get_errno() == errno.ENOSPC:
                self._max_files = len(self._files)
            return False
        folders = self._files.get(number)
        if folders is None:
            self._files[number] = (folder,)
        elif folder not in folders:
            self._files[number] = (*folders, folder)
        return True

    def read_changes(self) -> FolderChanges | None:
        """Return the changes since the last call, or None if everything must be scanned."""
        if self._fd < 0:
            return None
        changes = FolderChanges(set(), set())
        while True:
            try:
                data = os.read(self._fd, _BUFFER_BYTES)
            except BlockingIOError:
                return changes
            except OSError:
                return None
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                if not self._handle_event(changes, number, mask, data[at : at + length]):
                    self.close()
                    return None
                at += length

    def close(self) -> None:
        """Stop watching."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._folders.clear()
        self._files.clear()

    def _handle_event(self, changes: FolderChanges, number: int, mask: int, padded: bytes) -> bool:
        """Record one event. Returns False if only a full scan can interpret it."""
        if mask & _UNCLEAR:
            return False
        folders = self._files.get(number)
        if folders is not None:
            changes.folders.update(folders)
            if mask & _IGNORED:  # its last name is gone
                del self._files[number]
            return True
        folder = self._folders.get(number)
        if folder is None:
            return bool(mask & _IGNORED)  # the last event of a deleted folder
        if mask & _DELETE_SELF:
            del self._folders[number]
            return folder != ""
        if mask & _IS_FOLDER:
            if mask & _MOVED:
                return False  # all paths below it have changed
            if not padded:
                return True  # the parent folder reports the same change
            if mask & _CREATE:
                changes.made.add(join_path(folder, os.fsdecode(padded.rstrip(b"\0"))))
        changes.folders.add(folder)
        return True


def _user_watches() -> int:
    """Return how many files and folders all programs of this user may watch."""
    try:
        with open("/proc/sys/fs/inotify/max_user_watches", encoding="utf-8") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _is_local(root: str) -> bool:
    """Return whether all changes of a folder go through this kernel."""
    try:
        device = os.stat(root).st_dev
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                fields, _, tail = line.partition(" - ")
                if fields.split()[2] == f"{os.major(device)}:{os.minor(device)}":
                    return tail.split()[0] in _LOCAL
    except (OSError, IndexError):
        return False
    return False
