"""The system calls by which a command changes a path, and the paths that a stopped call names."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

from whet.sandbox.watch import read_text

_NO_FOLDER, _NO_PATH = -1, -1
_CURRENT, _REMOVE_FOLDER = -100, 0x200
# O_ACCMODE, O_CREAT, O_TRUNC; O_PATH, by which cp and mv open the folder that they put something into
_WRITES = 0o3 | 0o100 | 0o1000 | 0o10000000
Numbers = tuple[int | None, int | None]
"""A call's number on x86_64 and on arm64."""

OPENS: tuple[tuple[Numbers, int, int], ...] = (((2, None), 1, _WRITES), ((257, 56), 2, _WRITES))
"""`open` and `openat`: numbers, the argument of the flags, the flags of a writer."""

_PATH = ((_NO_FOLDER, 0),)
_PATH_AT = ((0, 1),)
_FOLDER = ((0, _NO_PATH),)
CHANGES: dict[Numbers, tuple[tuple[int, int], ...]] = {
    (85, None): _PATH,  # creat
    (76, 45): _PATH,  # truncate
    (83, None): _PATH,  # mkdir
    (258, 34): _PATH_AT,  # mkdirat
    (133, None): _PATH,  # mknod
    (259, 33): _PATH_AT,  # mknodat
    (82, None): ((_NO_FOLDER, 0), (_NO_FOLDER, 1)),  # rename
    (264, 38): ((0, 1), (2, 3)),  # renameat
    (316, 276): ((0, 1), (2, 3)),  # renameat2
    (86, None): ((_NO_FOLDER, 0), (_NO_FOLDER, 1)),  # link
    (265, 37): ((0, 1), (2, 3)),  # linkat
    (88, None): ((_NO_FOLDER, 1),),  # symlink
    (266, 36): ((1, 2),),  # symlinkat
    (87, None): _PATH,  # unlink
    (84, None): _PATH,  # rmdir
    (263, 35): _PATH_AT,  # unlinkat
    (90, None): _PATH,  # chmod
    (268, 53): _PATH_AT,  # fchmodat
    (452, 452): _PATH_AT,  # fchmodat2
    (92, None): _PATH,  # chown
    (94, None): _PATH,  # lchown
    (260, 54): _PATH_AT,  # fchownat
    (132, None): _PATH,  # utime
    (235, None): _PATH,  # utimes
    (261, None): _PATH_AT,  # futimesat
    (280, 88): _PATH_AT,  # utimensat
    (80, 49): _PATH,  # chdir
    (81, 50): _FOLDER,  # fchdir
}
"""Every other call by its numbers: the arguments of each folder and path that it changes, or from which paths
are changed afterwards."""

_OF_OPENS: dict[Numbers, tuple[tuple[int, int], ...]] = {(2, None): _PATH, (257, 56): _PATH_AT}
_PATHS = [{numbers[which]: paths for numbers, paths in (_OF_OPENS | CHANGES).items()} for which in range(2)]


def moves(which: int, number: int) -> bool:
    """Return whether a call moves what it names, and all that is below."""
    return any(numbers[which] == number for numbers in ((82, None), (264, 38), (316, 276)))


def removes(which: int, number: int, arguments: Sequence[int]) -> str:
    """Return whether a call removes a "file" or a "folder", or an empty string."""
    if number == (263, 35)[which]:  # unlinkat
        return "folder" if arguments[2] & _REMOVE_FOLDER else "file"
    return {87: "file", 84: "folder"}.get(number, "") if which == 0 else ""


def named_paths(which: int, number: int, pid: int, arguments: Sequence[int]) -> list[str]:
    """Return the paths that a stopped call of a process changes. `which` is the machine's column of numbers.

    Raises OSError if the process can't be read.
    """
    paths: list[str] = []
    for folder, path in _PATHS[which][number]:
        descriptor = _CURRENT if folder == _NO_FOLDER else ctypes.c_int(arguments[folder]).value
        text = read_text(pid, arguments[path]) if path != _NO_PATH and arguments[path] else b""
        base = b"/proc/%d/cwd" % pid if descriptor == _CURRENT else b"/proc/%d/fd/%d" % (pid, descriptor)
        paths.append(os.fsdecode(text if text.startswith(b"/") else os.path.join(os.readlink(base), text)))
    return paths
