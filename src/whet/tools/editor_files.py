"""Read and write files that are open in the person's editor.

Unsaved text is read instead of the file on disk, and changes are made through the editor, which shows and
saves them. This covers text files of moderate size; everything else, and anything that the editor can't or
won't do, uses the disk. The same rules apply to both: paths are already resolved, a file that changed
meanwhile is not written, and several files are changed together or not at all. The protocol with the
editor is implemented elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from whet.contract.errors import ToolDenied, ToolError
from whet.contract.tools import Buffers
from whet.tools import atomic
from whet.tools.atomic import PendingWrite
from whet.tools.encoding import Encoding, decode, encode, line_ending
from whet.tools.paths import ConfinedPath, kind, open_file

MAX_BYTES = 4_000_000
_NOT_SAVED = "the editor has it, but did not save it: other programs still see the old file"
_ALTERED = "the editor changed it while saving, as by formatting; read it again before the next edit"


def read_unsaved(buffers: Buffers | None, target: ConfinedPath) -> bytes | None:
    """Return a text file's unsaved content in the editor, in the encoding and line endings of the file on
    disk.

    Returns None if the editor has no content for it or the same as on disk, or can't hold all of its bytes.
    """
    if buffers is None:
        return None
    disk = _read_disk(target)
    if disk is None and kind(target):
        return None
    decoded = ("", Encoding()) if disk is None else decode(disk)
    if decoded is None or (text := buffers.read(target.path)) is None:
        return None
    on_disk, encoding = decoded
    if encoding.has_strays:  # an editor can't hold these bytes
        return None
    if _is_same_text(text, on_disk) or (disk is None and not text) or len(text) > MAX_BYTES:
        return None
    if "\r\n" not in text and line_ending(on_disk) == "\r\n":
        text = text.replace("\n", "\r\n")
    if on_disk.endswith("\n") and not text.endswith("\n"):
        text += line_ending(on_disk)  # line-based editors don't report the end of the last line
    try:
        return encode(text, encoding)
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def write_all(
    changes: Sequence[PendingWrite], buffers: Buffers | None, is_stopped: Callable[[], bool]
) -> list[str]:
    """Make all changes or none, through the editor if it accepts them. Durable on return.

    Returns one note per change, usually empty. Raises the same errors as `atomic.write_all`.
    """
    if buffers is None:
        return atomic.write_all(changes, is_stopped)
    return _Writing(buffers, is_stopped).run(changes)


class _Writing:
    """One set of changes in progress. `_done` are those that the editor made, with its previous content."""

    def __init__(self, buffers: Buffers, is_stopped: Callable[[], bool]) -> None:
        self._buffers = buffers
        self._is_stopped = is_stopped
        self._done: list[tuple[PendingWrite, str | None]] = []

    def run(self, changes: Sequence[PendingWrite]) -> list[str]:
        notes: list[str] = []
        disk_changes: dict[int, PendingWrite] = {}
        try:
            for number, change in enumerate(changes):
                note = self._through_editor(change)
                notes.append(note or "")
                if note is None:
                    disk_changes[number] = change
            disk_notes = atomic.write_all([*disk_changes.values()], self._is_stopped) if disk_changes else []
            for number, note in zip(disk_changes, disk_notes, strict=True):
                notes[number] = note
        except ToolError:
            self._restore()
            raise
        return notes

    def _through_editor(self, change: PendingWrite) -> str | None:
        """Make a change through the editor and return its note, or None to leave it to the disk.

        Raises ToolError if the file changed meanwhile, or if the editor holds unsaved text and did not
        accept the change: writing it to the disk would conflict with that text.
        """
        target = change.target
        if (text := _change_text(change)) is None:
            return None
        unsaved_data = read_unsaved(self._buffers, target)
        now = _read_disk(target) if unsaved_data is None else unsaved_data
        decoded = decode(now) if now is not None else None
        if decoded is None and kind(target):  # too large, or not text
            return None
        if atomic.fingerprint(target) != change.fingerprint or (change.old is not None and now != change.old):
            raise ToolError(f"{target.shown} changed meanwhile", hint="read it again")
        if self._is_stopped():
            raise ToolError("stopped")
        _check_writable(target)
        before = None if decoded is None else decoded[0]
        if self._buffers.write(target.path, text) and (note := self._check_result(change, text)) is not None:
            self._done.append((change, before))
            return note
        if unsaved_data is not None:
            raise ToolError(
                f"the editor holds unsaved changes of {target.shown} and did not take this one",
                hint="ask the person to save the file, then try again",
            )
        return None

    def _check_result(self, change: PendingWrite, text: str) -> str | None:
        """Check the result of a change that the editor reported as made. Returns its note, or None if nothing
        changed."""
        target = change.target
        disk = _read_disk(target)
        decoded = decode(disk) if disk is not None else None
        if disk == change.data or (decoded is not None and _is_same_text(decoded[0], text)):
            _sync(target)
            return ""
        editor_text = self._buffers.read(target.path)
        if editor_text is not None and _is_same_text(editor_text, text):
            return _NOT_SAVED
        return None if atomic.fingerprint(target) == change.fingerprint else _ALTERED

    def _restore(self) -> None:
        for change, before in reversed(self._done):
            if before is None:
                with suppress(ToolError):
                    atomic.write_all(
                        [PendingWrite(change.target, None, atomic.fingerprint(change.target))], lambda: False
                    )
            else:
                self._buffers.write(change.target.path, before)


def _change_text(change: PendingWrite) -> str | None:
    """Return a change as text, or None if it is not made through an editor."""
    if change.data is None or len(change.data) > MAX_BYTES:
        return None
    decoded = decode(change.data)
    if decoded is not None and (decoded[1].has_strays or decoded[1].ends_with_cr):  # an editor changes those
        return None
    if change.text is not None:
        return change.text
    return None if decoded is None else decoded[0]


def _read_disk(target: ConfinedPath) -> bytes | None:
    """Read a whole file that an editor may hold. Returns None if it does not exist or is large."""
    if kind(target) != "file":
        return None
    try:
        with os.fdopen(open_file(target), "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (ToolError, OSError):
        return None
    return data if len(data) <= MAX_BYTES else None


def _check_writable(target: ConfinedPath) -> None:
    """Make the checks that writing to disk would make: editors follow links and ignore read-only modes."""
    if os.path.realpath(target.path) != os.fspath(target.path):
        raise ToolDenied(f"{target.shown} goes through a symlink that changed")
    with suppress(OSError):
        atomic.refuse_read_only(target, os.stat(target.path, follow_symlinks=False).st_mode)


def _sync(target: ConfinedPath) -> None:
    descriptor = open_file(target)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_same_text(first: str, second: str) -> bool:
    """Return whether two texts differ at most in their line endings, including the last one."""
    return first == second or _plain(first) == _plain(second)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").removesuffix("\n")
