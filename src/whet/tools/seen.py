"""Track which version of a file a session has read, so that other people's later changes are not overwritten.

Only files that were read or written here are tracked; a file that was never read may be replaced. What
changes while a session's own command runs may be its work or somebody else's: an edit of a part fits only
what is there, but the whole file is not replaced until it was read again. Nothing is durable: after a
restart, files must be read again.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from whet.contract.errors import ToolDenied, ToolError
from whet.contract.tools import ToolContext
from whet.tools import atomic, editor_files
from whet.tools.paths import ConfinedPath

_MAX_FILES = 4_096
_Key = tuple[str, Path]
_State = tuple[object, str]


class _Version(msgspec.Struct, frozen=True):
    """A file's state that a session knows. `is_read` is False if it came about while its command ran."""

    target: ConfinedPath
    state: _State
    is_read: bool = True


class ReadVersions:
    """The file versions that this process's sessions have read. Used on the tools' threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: OrderedDict[_Key, _Version] = OrderedDict()

    def note(self, ctx: ToolContext, target: ConfinedPath, state: _State | None = None) -> None:
        """Record that a session knows a file as it is now, or as it was in `state`."""
        current = state_of(ctx, target) if state is None else state
        self._keep(ctx, _Version(target, current))

    def knows(self, ctx: ToolContext, target: ConfinedPath) -> bool:
        """Return whether a session has read or written a file."""
        return (ctx.session_id, target.path) in self._states

    def note_edit(self, ctx: ToolContext, target: ConfinedPath) -> None:
        """Record a file as it is after an edit of a part: the rest is as well known as it was before."""
        version = self._states.get((ctx.session_id, target.path))
        self._keep(ctx, _Version(target, state_of(ctx, target), version is None or version.is_read))

    def note_command(self, ctx: ToolContext, targets: Sequence[ConfinedPath]) -> None:
        """Record these files as they are after a command; those that changed meanwhile were not read."""
        for target in targets:
            version, current = self._states.get((ctx.session_id, target.path)), state_of(ctx, target)
            if version is not None and version.state != current:
                self._keep(ctx, _Version(target, current, is_read=False))

    def check(self, ctx: ToolContext, target: ConfinedPath, *, is_whole: bool = False) -> None:
        """Raise ToolDenied if a file is not as the session knows it, or, if the whole file is to be replaced,
        if the session has not read it as it is."""
        version = self._states.get((ctx.session_id, target.path))
        if version is None:
            return
        if version.state != state_of(ctx, target):
            cause = "by somebody else"
        elif is_whole and not version.is_read:
            cause = "while a command ran,"
        else:
            return
        raise ToolDenied(
            f"{target.shown} was changed {cause} after you read it, so nothing was written",
            hint="read it again, and keep what was changed",
        )

    def _keep(self, ctx: ToolContext, version: _Version) -> None:
        with self._lock:
            self._states[ctx.session_id, version.target.path] = version
            self._states.move_to_end((ctx.session_id, version.target.path))
            while len(self._states) > _MAX_FILES:
                self._states.popitem(last=False)

    def find_unchanged(self, ctx: ToolContext) -> list[ConfinedPath]:
        """Return the files that are as the session knows them, before a command of its own runs."""
        with self._lock:
            versions = [
                version for (session_id, _), version in self._states.items() if session_id == ctx.session_id
            ]
        return [each.target for each in versions if _state_or_none(ctx, each.target) == each.state]


def state_of(ctx: ToolContext, target: ConfinedPath) -> _State:
    """Return a value that changes whenever the file does, on disk or in the person's editor. Raises
    ToolError."""
    unsaved = editor_files.read_unsaved(ctx.buffers, target)
    return atomic.fingerprint(target), "" if unsaved is None else hashlib.sha256(unsaved).hexdigest()


def _state_or_none(ctx: ToolContext, target: ConfinedPath) -> _State | None:
    try:
        return state_of(ctx, target)
    except (OSError, ToolError):
        return None


READ_VERSIONS = ReadVersions()
