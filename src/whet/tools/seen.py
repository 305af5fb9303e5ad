"""Track which version of a file a session has read, so that other people's later changes are not overwritten.

Only files that were read or written here are tracked; a file that was never read may be replaced. Changes
that a session's own command makes while it runs count as read. Nothing is durable: after a restart, files
must be read again.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from whet.contract.errors import ToolDenied, ToolError
from whet.contract.tools import ToolContext
from whet.tools import atomic, editor_files
from whet.tools.paths import ConfinedPath

_MAX_FILES = 4_096
_Key = tuple[str, Path]
_State = tuple[object, str]


class ReadVersions:
    """The file versions that this process's sessions have read. Used on the tools' threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: OrderedDict[_Key, tuple[ConfinedPath, _State]] = OrderedDict()

    def note(self, ctx: ToolContext, target: ConfinedPath, state: _State | None = None) -> None:
        """Record that a session knows a file as it is now, or as it was in `state`."""
        current = state_of(ctx, target) if state is None else state
        with self._lock:
            self._states[ctx.session_id, target.path] = (target, current)
            self._states.move_to_end((ctx.session_id, target.path))
            while len(self._states) > _MAX_FILES:
                self._states.popitem(last=False)

    def note_all(self, ctx: ToolContext, targets: Sequence[ConfinedPath]) -> None:
        """Record that a session knows these files as they are now."""
        for target in targets:
            self.note(ctx, target)

    def check(self, ctx: ToolContext, target: ConfinedPath) -> None:
        """Raise ToolDenied if a file is not as the session knows it."""
        version = self._states.get((ctx.session_id, target.path))
        if version is not None and version[1] != state_of(ctx, target):
            raise ToolDenied(
                f"{target.shown} was changed by somebody else after you read it, so nothing was written",
                hint="read it again, and keep what was changed",
            )

    def find_unchanged(self, ctx: ToolContext) -> list[ConfinedPath]:
        """Return the files that are as the session knows them, before a command of its own runs."""
        with self._lock:
            versions = [
                version for (session_id, _), version in self._states.items() if session_id == ctx.session_id
            ]
        return [target for target, state in versions if _state_or_none(ctx, target) == state]


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
