"""Records a workspace before and after a step. This is all that turns with commands need.

An interrupted rewind is finished first. The modules that count lines and roll back are imported only when
needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from whet.rewind import database
from whet.rewind.database import Record
from whet.rewind.recorder import Workspace
from whet.rewind.states import is_work, shown

if TYPE_CHECKING:
    from whet.rewind.taking_back import TakenBack

_MOST_COUNTED = 100
_MOST_NAMED = 1_000


def begin_step(workspace: Workspace, session: str, turn: int, step: int) -> tuple[int, TakenBack | None]:
    """Record the workspace before a step.

    Returns the record's number, and the result of an interrupted rewind that was finished first, or None.
    """
    with workspace.alone():
        finished = _finished(workspace)
        before = workspace.look(short=True)
        new = Record(0, session, turn, step, "step", before, before, workspace.clock.unix_ms())
        return workspace.note(new), finished


def _finished(workspace: Workspace) -> TakenBack | None:
    if workspace.file.read_now(database.unfinished) is None:
        return None
    from whet.rewind.taking_back import finish_alone  # noqa: PLC0415  3 ms, for next to no step

    return finish_alone(workspace)


def end_step(workspace: Workspace, record: int) -> list[tuple[str, int, int]]:
    """Record the workspace after a step, and return the files that it changed, with lines added and removed.

    Folders are left out.
    """
    with workspace.alone():
        after = workspace.look(short=True)
        before = workspace.file.write_now(lambda db: database.end_record(db, record, after))

    if before == after:
        return []
    from whet.rewind.differences import difference  # noqa: PLC0415  most steps change nothing

    def work(connection: apsw.Connection) -> list[tuple[str, int, int]]:
        paths = sorted(filter(is_work, database.between(connection, before, after)))
        results: list[tuple[str, int, int]] = []
        for at, path in enumerate(paths[:_MOST_NAMED]):
            old, new = (database.state_at(connection, path, number) for number in (before, after))
            if at >= _MOST_COUNTED:
                results.append((shown(path), 0, 0))
                continue
            diff = difference(connection, path, old, new)
            if diff.note != "folder":
                results.append((diff.path, diff.added, diff.removed))
        return results

    return workspace.file.read_now(work)
