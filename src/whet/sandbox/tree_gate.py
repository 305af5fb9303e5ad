"""Keeps folders of linked packages read-only in a launcher's mounts until a command is about to write there.

Copying such a folder takes seconds, and most commands only read it. So the kernel stops the calls that
change a path, this module looks whether one leads into such a folder, and if so, gives the workspace copies
of its files and makes the folder writable before the call goes on. The mount is what protects the files: a
call that hides its path meets a read-only file system.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import select
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from whet.contract.errors import ToolError
from whet.sandbox.hardlinks import WorkspaceLinks
from whet.sandbox.nofollow import parent_of
from whet.sandbox.policy import SandboxPolicy, is_below
from whet.sandbox.sockets import find_foreign_sockets
from whet.sandbox.watch import RECEIVE, SEND
from whet.sandbox.write_calls import moves, named_paths, removes

_GO_ON = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_LIMIT_S = 20.0
_MAX_ASKED = 20_000
"""Calls that are asked about before the folders are copied all the same: by then the asking has taken as long
as the copying of a large folder takes, and the next launcher asks no more."""
TreeIds = dict[str, tuple[int, int]]
"""Folders with device and inode."""

_UNMOUNT = """\
import ctypes, fcntl, os, struct, sys
libc, namespace = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "mounts")
    return result
check(libc.setns(fcntl.ioctl(namespace, 0xB701), 0x10000000))
check(libc.setns(namespace, 0x20000))
for path, device, inode in zip(*[iter(sys.argv[2:])] * 3):
    how = struct.pack("QQQ", os.O_PATH | os.O_DIRECTORY, 0, 0x6)  # no links on the way
    handle = check(libc.syscall(ctypes.c_long(437), -100, os.fsencode(path), how, ctypes.c_size_t(24)))
    state = os.fstat(handle)
    if (state.st_dev, state.st_ino) != (int(device), int(inode)):
        raise OSError("another folder")
    os.fchdir(handle)
    check(libc.umount2(b".", 2))
"""
"""Enters a launcher's mounts, and takes the read-only mount off each folder that still is the one that was
mounted. A file that a program has open stays read-only for it: it is the cache's."""


class TreeGate:
    """The read-only folders of one launcher. `listener` is where the kernel asks, `namespace` its mounts;
    both are closed at the end. Thread-safe."""

    def __init__(self, listener: int, namespace: int, trees: TreeIds, links: WorkspaceLinks) -> None:
        self._listener, self._namespace = listener, namespace
        self._trees = trees
        self._links = links
        self._which = 0 if platform.machine() == "x86_64" else 1
        self._asked_count = 0
        self._end, self._ended = os.pipe()
        threading.Thread(target=self._answer_all, name="sandbox-trees", daemon=True).start()

    def held(self) -> frozenset[str]:
        """Return the folders that are read-only inside. One that another folder has replaced is not."""
        return frozenset(path for path, id_ in self._trees.items() if folder_id(path) == id_)

    def close(self) -> None:
        """Stop answering. The launcher has ended."""
        os.close(self._ended)

    def _answer_all(self) -> None:
        poll = select.poll()
        for handle in (self._listener, self._end):
            poll.register(handle, select.POLLIN)
        try:
            while True:
                events = dict(poll.poll())
                if self._end in events or events.get(self._listener, 0) & ~select.POLLIN:
                    return
                with contextlib.suppress(OSError):  # the process that asked has ended
                    self._answer()
        finally:
            for handle in (self._listener, self._namespace, self._end):
                os.close(handle)

    def _answer(self) -> None:
        request = bytearray(80)
        fcntl.ioctl(self._listener, RECEIVE, request)
        ticket, pid, _, number, _, _, *arguments = struct.unpack("=QIIiIQ6Q", request)
        error, is_done = errno.EROFS, False
        try:
            self._asked_count += 1
            entered, paths = self._entered(number, pid, arguments)
            kind = removes(self._which, number, arguments)
            if self._asked_count >= _MAX_ASKED:
                error = self._open([*self._trees])
            elif entered and kind and paths:
                error, is_done = self._remove(kind, paths[-1], pid), True
            else:
                error = self._open(entered)
        finally:
            answer = struct.pack("=QqiI", ticket, 0, -error, 0 if error or is_done else _GO_ON)
            fcntl.ioctl(self._listener, SEND, bytearray(answer))

    def _entered(self, number: int, pid: int, arguments: Sequence[int]) -> tuple[list[str], list[str]]:
        """Return the folders that a call's paths lead to or into, or that would move with a folder above, and
        the paths, empty if they are not known."""
        if not self._trees:
            return [], []
        try:
            named = named_paths(self._which, number, pid, arguments)
        except OSError:
            return [*self._trees], []
        paths = [real_path for path in named for real_path in _real_paths(pid, path)]
        entered = [tree for tree in self._trees if any(f"{path}/".startswith(f"{tree}/") for path in paths)]
        if moves(self._which, number):
            entered += [tree for tree in self._trees if any(tree.startswith(f"{path}/") for path in paths)]
        return entered, paths

    def _remove(self, kind: str, path: str, pid: int) -> int:
        """Remove a name for a command, which changes no file; return an error number or 0."""
        tree = next(tree for tree in self._trees if f"{path}/".startswith(f"{tree}/"))
        above = os.path.dirname(path)
        try:
            self._links.expect_write(tree)
            with parent_of(path, os.path.dirname(tree)) as (folder, name):
                state, seen = os.fstat(folder), os.stat(f"/proc/{pid}/root{above}")
                if (state.st_dev, state.st_ino) != (seen.st_dev, seen.st_ino):
                    return errno.EAGAIN
                (os.rmdir if kind == "folder" else os.unlink)(name, dir_fd=folder)
        except ToolError:
            return errno.EROFS
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def _open(self, trees: Iterable[str]) -> int:
        """Copy what a command is about to change, make the folders writable; return an error number or 0."""
        try:
            for tree in dict.fromkeys(trees):
                self._links.release(tree)
                if folder_id(tree) == self._trees[tree]:  # the kernel has taken the mount off a removed one
                    self._unmount(tree)
                self._trees = {path: id_ for path, id_ in self._trees.items() if path != tree}
        except (ToolError, subprocess.SubprocessError, OSError):
            return errno.EROFS
        return 0

    def _unmount(self, tree: str) -> None:
        code = [sys.executable, "-I", "-S", "-c", _UNMOUNT, str(self._namespace)]
        subprocess.run(
            [*code, tree, *map(str, self._trees[tree])],
            pass_fds=(self._namespace,),
            check=True,
            capture_output=True,
            timeout=_LIMIT_S,
        )


class HeldTrees:
    """The folders that a sandbox's launchers keep read-only. `has_mounts`: its engine has its own mounts."""

    def __init__(self, policy: SandboxPolicy, links: WorkspaceLinks, *, has_mounts: bool) -> None:
        self._policy = policy
        self._links = links
        self._has_mounts = has_mounts
        self._gate: TreeGate | None = None

    @property
    def is_due(self) -> bool:
        """Whether a launcher that holds folders should be started."""
        return self._gate is None and bool(self.plan())

    @property
    def is_over(self) -> bool:
        """Whether the launcher holds none any more, but still asks."""
        return self._gate is not None and not self._gate.held()

    def plan(self) -> TreeIds:
        """Return the folders to hold: those with nothing in them that has a mount of its own."""
        if not self._has_mounts or not (trees := self._links.find_trees()):
            return {}
        policy = self._policy
        others = (*policy.protected_paths(), *policy.hidden_paths(), *policy.write, *policy.aliases)
        others += tuple(find_foreign_sockets(policy))
        return {
            tree: folder_id(tree) for tree in trees if not any(is_below(path, Path(tree)) for path in others)
        }

    def release(self) -> bool:
        """Copy instead, where the kernel can't ask. Returns whether there was anything to hold."""
        trees = self.plan()
        for tree in trees:
            self._links.release(tree)
        return bool(trees)

    def start(self, trees: TreeIds, namespace: int, listener: int) -> None:
        """Begin to answer a launcher."""
        self._gate = TreeGate(listener, namespace, trees, self._links)

    def separate(self) -> None:
        """Have no command write a file that another folder holds, too. Raises ToolError."""
        self._links.separate(self._gate.held() if self._gate is not None else frozenset())

    def close(self) -> None:
        """Stop answering. The launcher has ended."""
        if self._gate is not None:
            self._gate.close()
            self._gate = None


def folder_id(path: str) -> tuple[int, int]:
    """Return a folder's device and inode, zeros if there is none."""
    try:
        state = os.stat(path, follow_symlinks=False)
    except OSError:
        return 0, 0
    return state.st_dev, state.st_ino


def _real_paths(pid: int, path: str) -> Iterator[str]:
    """Yield what a path leads to, and last the path in the real folder above, as the process sees them."""
    above, name = os.path.split(path.rstrip("/"))
    for part, rest in ((path, ""), (above, f"/{name}")):
        with contextlib.suppress(OSError):
            handle = os.open(f"/proc/{pid}/root{part}", os.O_PATH | os.O_CLOEXEC)
            try:
                yield os.path.normpath(os.readlink(f"/proc/self/fd/{handle}") + rest)
            finally:
                os.close(handle)
