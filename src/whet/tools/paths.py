"""Keep the paths that a model names inside the folders that it may use.

A path is resolved with all its symlinks and must then be in the workspace or in an allowed folder. Files
are opened by walking down from that folder without following links, so the system itself refuses a link
created between check and use.
"""

from __future__ import annotations

import difflib
import errno
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from whet.beneath import open_folder
from whet.contract.errors import BadInput, ToolDenied, ToolError
from whet.file_names import find_named_path, printable
from whet.sandbox.path_rules import NO_RULES, PathRules

_SYSTEM = tuple(Path(name) for name in ("/proc", "/sys", "/dev"))
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symlink that changed while it was opened",
}


class ConfinedPath(msgspec.Struct, frozen=True):
    """A resolved path, inside `root` and without symlinks."""

    root: Path
    path: Path
    shown: str
    """Its form for the model and for people."""
    is_linked: bool = False
    """Whether it was reached through a link."""
    link_name: str = ""
    """The link's name, if that differs from `shown`."""

    @property
    def name(self) -> str:
        """The last component."""
        return self.path.name


def resolve(text: str, workspace: Path, allowed: Sequence[Path] = ()) -> ConfinedPath:
    """Resolve a path from the model. Relative paths start at the workspace; ~ is the home folder.

    The file need not exist. If it does not, a file whose name only looks the same is taken. Raises BadInput
    if the text can't be a path or two files look like it, ToolDenied if it leads outside.
    """
    name = _check_name(text)
    base = Path(os.path.realpath(workspace))
    try:
        exact = find_named_path(base, name)
        real_path = Path(os.path.realpath(exact))
    except (OSError, ValueError) as error:
        raise BadInput(f"{printable(text[:80])!r} can't be a path: {error}") from error
    for root in (base, *(Path(os.path.realpath(folder)) for folder in allowed)):
        if real_path.is_relative_to(root):
            _refuse_system(root, real_path)
            inside = real_path.relative_to(base) if root == base else real_path
            named = Path(os.path.normpath(base / exact))
            shown, is_linked = printable(os.fspath(inside)), named != real_path
            link_name = (
                _name_link(named, shown, (base, Path(os.path.normpath(workspace)))) if is_linked else ""
            )
            return ConfinedPath(root, real_path, shown, is_linked, link_name)
    raise ToolDenied(
        f"{printable(text)} is outside the workspace {base}",
        hint="name a file in the workspace, or use the terminal",
    )


def _name_link(named: Path, shown: str, folders: Sequence[Path]) -> str:
    """Return the name of a link as `shown` names its target, or an empty string if both are the same."""
    folder = next((folder for folder in folders if named.is_relative_to(folder)), None)
    name = printable(os.fspath(named if folder is None else named.relative_to(folder)))
    return "" if name == shown else name


class FileAccess(msgspec.Struct, frozen=True):
    """What file tools may use: the workspace and the allowed `folders`, without what the `rules` protect."""

    folders: Sequence[Path] = ()
    rules: PathRules = NO_RULES

    def resolve(self, text: str, workspace: Path, *, writes: bool = False) -> ConfinedPath:
        """Resolve a path as `resolve` does. Raises ToolDenied if a deny rule forbids to read, or with
        `writes` to change, it.

        The rule is checked for the path that is returned. Opening that follows no links, so a link that is
        changed meanwhile can't lead to another file.
        """
        target = resolve(text, workspace, self.folders)
        if rule := self.rules.find(target.path, workspace, writes=writes):
            raise ToolDenied(f"the rule deny: {rule} protects {target.shown}")
        return target


@contextmanager
def folder_of(target: ConfinedPath, *, make: bool = False) -> Generator[int]:
    """Open the folder that holds the target, without following links, and yield its descriptor.

    With `make`, missing folders are created. Raises OSError, and ToolDenied if a link is found.
    """
    names = target.path.parent.relative_to(target.root).parts if target.path != target.root else ()
    with open_folder(target.root, names, 0o777 if make else None) as folder:
        yield folder


def kind(target: ConfinedPath) -> str:
    """Return the kind of the target: "file", "folder", or an empty string if it does not exist.

    Raises BadInput for FIFOs, sockets and devices, ToolError if it can't be examined.
    """
    try:
        mode = os.stat(target.path, follow_symlinks=False).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise system_error("look at", target, error) from error
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    raise _kind_error(target, mode)


def open_file(target: ConfinedPath) -> int:
    """Open a regular file for reading and return its descriptor. Never waits for the other end of a FIFO.

    Raises BadInput if it is missing (with the nearest name) or not a regular file.
    """
    if kind(target) == "":
        raise missing_error(target)
    try:
        with folder_of(target) as folder:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(target.name, flags, dir_fd=folder)
    except OSError as error:
        raise system_error("read", target, error) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _kind_error(target, mode)
    return descriptor


def open_listing(target: ConfinedPath) -> int:
    """Open a folder for `os.scandir`, without following links, and return its descriptor. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with folder_of(target) as folder:
        return os.open("." if target.path == target.root else target.name, flags, dir_fd=folder)


def _kind_error(target: ConfinedPath, mode: int) -> BadInput:
    return BadInput(f"{target.shown} is {_KINDS.get(stat.S_IFMT(mode), 'no regular file')}, not a file")


def missing_error(target: ConfinedPath) -> BadInput:
    """Return the error for a missing target, with the nearest names in the deepest folder that exists."""
    folder = target.path.parent
    while folder != target.root and not folder.is_dir():
        folder = folder.parent
    missing_name = target.path.relative_to(folder).parts[0] if target.path != folder else target.name
    try:
        names = sorted(os.listdir(folder))[:5000]
    except OSError:
        names = []
    close = difflib.get_close_matches(missing_name.lower(), [name.lower() for name in names], n=3, cutoff=0.5)
    near = [printable(name) for name in names if name.lower() in close]
    where = target.shown[: -len(printable(target.name))].rstrip("/") or "the workspace"
    if folder != target.path.parent:
        where = f"{printable(os.path.relpath(folder, target.root))} (the folders below it don't exist)"
    message = f"{target.shown} does not exist"
    return BadInput(message, hint=f"in {where} there is: {', '.join(near)}" if near else "list the folder")


def system_error(verb: str, target: ConfinedPath, error: OSError) -> ToolError:
    """Return the tool error for a system error. `verb` is the action that failed."""
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return ToolDenied(f"{target.shown} goes through a symlink that changed or runs in a circle")
    if error.errno == errno.ENAMETOOLONG:
        return BadInput(f"{target.shown[:80]}... is a longer name than the file system takes")
    reason = (error.strerror or str(error)).lower()
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return ToolError(f"can't {verb} {target.shown}: {reason}", hint="free disk space" if is_full else "")


def _check_name(text: str) -> str:
    if not text.strip():
        raise BadInput("the path is empty", hint="name a file, or . for the workspace")
    if "\0" in text:
        raise BadInput("the path holds a NUL character")
    return os.path.expanduser(text)


def _refuse_system(root: Path, path: Path) -> None:
    for system in _SYSTEM:
        if path.is_relative_to(system) and not root.is_relative_to(system):
            raise ToolDenied(f"{path} is a system path, and file tools don't open those")
