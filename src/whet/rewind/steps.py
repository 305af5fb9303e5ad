"""Records a workspace before and after a step. This is all that turns with commands need.

An interrupted rewind is finished first. The modules that count lines and roll back are imported only when
needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from whet.contract.receipts import HASH_CHARS, FileLines
from whet.rewind import database
from whet.rewind.database import Record
from whet.rewind.deferred import HoldFolders, hold_folders
from whet.rewind.recorder import Workspace
from whet.rewind.states import PathState, is_work_file, printable_path

if TYPE_CHECKING:
    from whet.rewind.taking_back import RewindResult

_MAX_COUNTED = 100
_MAX_NAMED = 1_000


def begin_step(
    workspace: Workspace, session: str, turn: int, step: int, hold: HoldFolders | None = None
) -> tuple[int, RewindResult | None]:
    """Record the workspace before a step. `hold` returns folders that are recorded later, before a command
    writes there.

    Returns the record's number, and the result of an interrupted rewind that was finished first, or None. If
    it fails, the step runs unrecorded.
    """
    try:
        with workspace.exclusive():
            finished = _finish_rewind(workspace)
            hold_folders(workspace, hold)
            before = workspace.scan(short=True)
            new = Record(0, session, turn, step, "step", before, before, workspace.clock.unix_ms())
            return workspace.begin_record(new), finished
    except BaseException:
        workspace.is_unguarded |= hold is None or not workspace.is_held
        raise


def _finish_rewind(workspace: Workspace) -> RewindResult | None:
    if workspace.file.read_now(database.find_unfinished_rewind) is None:
        return None
    from whet.rewind.taking_back import finish_under_lock  # noqa: PLC0415  3 ms, for next to no step

    return finish_under_lock(workspace)


def end_step(workspace: Workspace, record: int) -> list[FileLines]:
    """Record the workspace after a step, and return the files that it changed.

    Folders are left out.
    """
    with workspace.exclusive():
        after = workspace.scan(short=True)
        before = workspace.end_step(record, after)
    if before == after:
        return []
    from whet.rewind.differences import diff_states  # noqa: PLC0415  most steps change nothing

    def work(connection: apsw.Connection) -> list[FileLines]:
        paths = sorted(filter(is_work_file, database.find_changed_paths(connection, before, after)))
        results: list[FileLines] = []
        for at, path in enumerate(paths[:_MAX_NAMED]):
            old, new = (database.state_at(connection, path, number) for number in (before, after))
            hashes = {"before": _hash(old), "after": _hash(new)}
            if at >= _MAX_COUNTED:
                results.append(FileLines(printable_path(path), 0, 0, **hashes))
                continue
            diff = diff_states(connection, path, old, new)
            if diff.note != "folder":
                results.append(FileLines(diff.path, diff.added, diff.removed, **hashes))
        return results

    return workspace.file.read_now(work)


def _hash(state: PathState | None) -> str:
    return state.content.hex()[:HASH_CHARS] if state is not None and state.kind == "file" else ""
