"""Files as the person's editor holds them: unsaved text is read instead of the disk's, and changes are made
through the editor, which then shows them and saves.

Only text files of moderate size; everything else, and all that the editor can't or won't do, is the disk's.
The same rules hold on both ways: paths were resolved before, a file that changed meanwhile is not written,
several files are changed together or not at all. How an editor is spoken to is not this module's business.
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

LARGEST_BYTES = 4_000_000
_NOT_SAVED = "the editor has it, but did not save it: other programs still see the old file"
_ALTERED = "the editor changed it while saving, as by formatting; read it again before the next edit"


def unsaved(buffers: Buffers | None, place: ConfinedPath) -> bytes | None:
    """Give a text file as the editor holds it, in the disk file's encoding and line ends; None where the disk
    holds the same, or the editor has nothing to say of it."""
    if buffers is None:
        return None
    disk = _disk(place)
    if disk is None and kind(place):
        return None
    known = ("", Encoding()) if disk is None else decode(disk)
    if known is None or (text := buffers.read(place.path)) is None:
        return None
    on_disk, encoding = known
    if _same(text, on_disk) or (disk is None and not text) or len(text) > LARGEST_BYTES:
        return None
    if "\r\n" not in text and line_ending(on_disk) == "\r\n":
        text = text.replace("\n", "\r\n")
    if on_disk.endswith("\n") and not text.endswith("\n"):
        text += line_ending(on_disk)  # editors that keep lines don't tell of the last line's end
    try:
        return encode(text, encoding)
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def write_all(
    changes: Sequence[PendingWrite], buffers: Buffers | None, is_stopped: Callable[[], bool]
) -> list[str]:
    """Make all changes or none, through the editor where it takes them; durable on return. Gives what is to
    be said of each, mostly nothing. Raises what `atomic.write_all` does."""
    if buffers is None:
        atomic.write_all(changes, is_stopped)
        return [""] * len(changes)
    return _Writing(buffers, is_stopped).run(changes)


class _Writing:
    """One set of changes on its way. `_done` are those that the editor took, with what it held before."""

    def __init__(self, buffers: Buffers, is_stopped: Callable[[], bool]) -> None:
        self._buffers = buffers
        self._is_stopped = is_stopped
        self._done: list[tuple[PendingWrite, str | None]] = []

    def run(self, changes: Sequence[PendingWrite]) -> list[str]:
        notes: list[str] = []
        rest: list[PendingWrite] = []
        try:
            for change in changes:
                note = self._through_editor(change)
                notes.append(note or "")
                if note is None:
                    rest.append(change)
            if rest:
                atomic.write_all(rest, self._is_stopped)
        except ToolError:
            self._put_back()
            raise
        return notes

    def _through_editor(self, change: PendingWrite) -> str | None:
        """Have the editor make a change and give what is to be said of it; None leaves it to the disk.

        Raises ToolError where the file is another than it was, or the editor keeps unsaved text of it and
        did not take the change: written to the disk, it would stand against that text.
        """
        place = change.place
        if (text := _text(change)) is None:
            return None
        held = unsaved(self._buffers, place)
        now = _disk(place) if held is None else held
        found = decode(now) if now is not None else None
        if found is None and kind(place):  # large, or no text
            return None
        if atomic.fingerprint(place) != change.seen or (change.old is not None and now != change.old):
            raise ToolError(f"{place.shown} changed meanwhile", hint="read it again")
        if self._is_stopped():
            raise ToolError("stopped")
        _refuse(place)
        before = None if found is None else found[0]
        if self._buffers.write(place.path, text) and (note := self._seen_after(change, text)) is not None:
            self._done.append((change, before))
            return note
        if held is not None:
            raise ToolError(
                f"the editor holds unsaved changes of {place.shown} and did not take this one",
                hint="ask the person to save the file, then try again",
            )
        return None

    def _seen_after(self, change: PendingWrite, text: str) -> str | None:
        """Look at what became of a change that the editor says it made; None where nothing did."""
        place = change.place
        disk = _disk(place)
        found = decode(disk) if disk is not None else None
        if found is not None and _same(found[0], text):
            _sync(place)
            return ""
        held = self._buffers.read(place.path)
        if held is not None and _same(held, text):
            return _NOT_SAVED
        return None if atomic.fingerprint(place) == change.seen else _ALTERED

    def _put_back(self) -> None:
        for change, before in reversed(self._done):
            if before is None:
                with suppress(ToolError):
                    atomic.write_all(
                        [PendingWrite(change.place, None, atomic.fingerprint(change.place))], lambda: False
                    )
            else:
                self._buffers.write(change.place.path, before)


def _text(change: PendingWrite) -> str | None:
    """Give a change as text; None for what no editor is asked to do."""
    if change.data is None or len(change.data) > LARGEST_BYTES:
        return None
    found = decode(change.data)
    return None if found is None else found[0]


def _disk(place: ConfinedPath) -> bytes | None:
    """Read a whole file that an editor may hold; None where there is none, or a large one."""
    if kind(place) != "file":
        return None
    try:
        with os.fdopen(open_file(place), "rb") as stream:
            data = stream.read(LARGEST_BYTES + 1)
    except (ToolError, OSError):
        return None
    return data if len(data) <= LARGEST_BYTES else None


def _refuse(place: ConfinedPath) -> None:
    """Check what the disk's way checks itself: the editor follows links and knows no read-only marks."""
    if os.path.realpath(place.path) != os.fspath(place.path):
        raise ToolDenied(f"{place.shown} goes through a symlink that changed")
    with suppress(OSError):
        atomic.refuse_read_only(place, os.stat(place.path, follow_symlinks=False).st_mode)


def _sync(place: ConfinedPath) -> None:
    descriptor = open_file(place)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _same(one: str, other: str) -> bool:
    """Whether two texts differ in their line ends at most, the last one's included."""
    return one == other or _plain(one) == _plain(other)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").removesuffix("\n")
