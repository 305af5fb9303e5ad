"""Records folders of linked packages only before something may change them.

A virtual environment or `node_modules` has thousands of files, and commands seldom write there. The sandbox
holds such folders read-only, and calls `record_deferred` before it lets a command write into one or remove a
name from it. What changes files without the sandbox has all of them recorded before its step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from whet.contract.errors import ToolError, WhetError
from whet.rewind.recorder import ScanStopped, Workspace
from whet.rewind.scan import WorkspaceTooLarge

_log = logging.getLogger(__name__)

RecordFolders = Callable[[frozenset[str]], None]
HoldFolders = Callable[[RecordFolders], frozenset[str]]
"""Returns the folders that no command writes before the argument is called, with those that stay held, and
none at all if that raises ToolError."""


def hold_folders(workspace: Workspace, hold: HoldFolders | None) -> None:
    """Leave the folders that are held out of a new record, while `exclusive`; record all others that an
    earlier step left out. Without `hold` none is held. Raises as `Workspace.scan`."""
    if workspace.is_unguarded:
        workspace.defer(frozenset(), are_lost=True)
        workspace.is_unguarded = False
    if hold is None or not workspace.may_defer:
        _record_others(workspace, frozenset())
    elif not workspace.is_held:
        _record_others(workspace, hold(partial(record_deferred, workspace)))
        workspace.is_held = True


def record_deferred(workspace: Workspace, held: frozenset[str]) -> None:
    """Record the folders that were left out, but for those that are `held`: a command may write there next.

    If they have too many files to record, the command writes all the same, and the next scan raises the
    error. Raises ToolError if they can't be recorded now: the command must not write, for its result
    would be stored as the original."""
    if not workspace.deferred - held:
        return
    try:
        with workspace.exclusive():
            _record_others(workspace, held)
    except WorkspaceTooLarge as error:
        workspace.failure = error
    except ScanStopped as error:
        raise ToolError("the program ends") from error
    except (WhetError, OSError) as error:
        _log.warning("a folder of packages could not be recorded, so no command may change it: %s", error)
        raise ToolError(
            f"a folder of packages can't be changed, because it could not be recorded before: {error}",
            hint="try again, or set rewind.record = false",
        ) from error


def _record_others(workspace: Workspace, held: frozenset[str]) -> None:
    """Record the folders that were left out, but for those that are `held`. Folders that are too
    large stay unrecorded, and later scans take them as new."""
    try:
        workspace.defer(held)
    except WorkspaceTooLarge:
        workspace.defer(held, are_lost=True)
        raise
