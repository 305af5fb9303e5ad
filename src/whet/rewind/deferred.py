"""Records folders of linked packages only before something may change them.

A virtual environment or `node_modules` has thousands of files, and commands seldom write there. The sandbox
holds such folders read-only, and calls `record_deferred` before it lets a command write into one or remove a
name from it. What changes files without the sandbox has all of them recorded before its step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from whet.contract.errors import WhetError
from whet.rewind.recorder import LookStopped, Workspace

RecordFolders = Callable[[frozenset[str]], None]
HoldFolders = Callable[[RecordFolders], frozenset[str]]
"""Returns the folders that no command writes before the argument is called, with those that stay held."""


def hold_folders(workspace: Workspace, hold: HoldFolders | None) -> None:
    """Leave the folders that are held out of a new record, while `exclusive`; record all others that an
    earlier step left out. Without `hold` none is held. Raises as `Workspace.look`."""
    if hold is None or not workspace.may_defer:
        workspace.defer(frozenset())
    elif not workspace.is_held:
        workspace.defer(hold(partial(record_deferred, workspace)))
        workspace.is_held = True


def record_deferred(workspace: Workspace, held: frozenset[str]) -> None:
    """Record the folders that were left out, but for those that are `held`: a command may write there next.
    The next look raises the error if that fails."""
    if not workspace.deferred - held:
        return
    try:
        with workspace.exclusive():
            workspace.defer(held)
    except LookStopped:
        pass  # the program ends, and its commands with it
    except (WhetError, OSError) as error:
        workspace.failure = error
