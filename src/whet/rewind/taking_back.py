"""Undoes steps in a workspace, and redoes them: a scan, a plan, a journal, the files, a scan.

The plan is on disk before the first file changes. After a crash, the next rewind or step carries the plan
out to its end first.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

import apsw
import msgspec

from whet.contract.errors import StoreCorrupt
from whet.contract.texts import from_values
from whet.rewind import database
from whet.rewind.contents import pack
from whet.rewind.database import Record
from whet.rewind.planning import Change, Conflict, Plan, Planner, Scope
from whet.rewind.recorder import Workspace
from whet.rewind.restoring import Restorer
from whet.rewind.states import PathState, is_work_file, printable_path, split_path

_OWNER = 0o700


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    path: bytes
    now: PathState | None
    then: PathState | None


class _Journal(msgspec.Struct, frozen=True):
    entries: list[_Entry]
    modes: list[tuple[bytes, int]]


class RewindResult(msgspec.Struct, frozen=True):
    """The result of rewinding files, or the plan of it. `changes` are planned; `failed` were not carried
    out."""

    changes: Sequence[Change]
    conflicts: Sequence[Conflict]
    failed: dict[str, str]
    record: int = 0


def find_changed_files(
    workspace: Workspace, session: str, steps: Collection[tuple[int, int]], *, short: bool = False
) -> dict[tuple[int, int], list[str]]:
    """Return the files that have changed, by anyone, since steps (turn, number) of a session ended.

    Steps without a record are left out. `short` is as for a scan.
    """
    with workspace.exclusive():
        now = workspace.scan(short=short)

    def work(connection: apsw.Connection) -> dict[tuple[int, int], list[str]]:
        files: dict[tuple[int, int], list[str]] = {}
        for record in database.list_records(connection, session):
            if record.kind == "step" and (record.turn, record.step) in steps:
                paths = filter(is_work_file, database.find_changed_paths(connection, record.after, now))
                files[record.turn, record.step] = sorted(
                    printable_path(path)
                    for path in paths
                    if not _is_folder(connection, path, (record.after, now))
                )
        return files

    return workspace.file.read_now(work)


def _is_folder(connection: apsw.Connection, path: str, versions: Sequence[int]) -> bool:
    states = [database.state_at(connection, path, number) for number in versions]
    return all(state is None or state.kind == "folder" for state in states)


def finish_interrupted(workspace: Workspace) -> RewindResult | None:
    """Finish an interrupted rewind. Returns None if nothing was interrupted."""
    with workspace.exclusive():
        return finish_under_lock(workspace)


def plan_rewind(workspace: Workspace, first: int, session: str, scope: Scope) -> RewindResult:
    """Return what undoing a session's records from number `first` on would do now."""
    with workspace.exclusive():
        finish_under_lock(workspace)
        rewind_plan = _make_plan(workspace, workspace.scan(), _read_records(workspace, session, first), scope)
        return RewindResult(list(rewind_plan.changes.values()), list(rewind_plan.conflicts.values()), {})


def take_back(workspace: Workspace, first: int, new: Record, scope: Scope) -> RewindResult:
    """Undo a session's records from number `first` on. The rewind is stored as a record: `new` without
    versions.

    Conflicts are left as they are unless the scope forces them. Raises StoreFull while files
    are changing, and StoreError; the next rewind or step then finishes the plan.
    """
    with workspace.exclusive():
        finish_under_lock(workspace)
        before = workspace.scan()
        rewind_plan = _make_plan(workspace, before, _read_records(workspace, new.session, first), scope)
        changes = list(rewind_plan.changes.values())
        if not changes:
            return RewindResult([], list(rewind_plan.conflicts.values()), {})
        texts = [(hash_, *pack(text)) for hash_, text in rewind_plan.texts.items()]
        if texts:
            workspace.file.write_now(lambda db: database.store_blobs(db, texts))
        started = msgspec.structs.replace(new, kind="rewind", before=before, at_ms=workspace.clock.unix_ms())
        journal = _Journal(
            [_Entry(os.fsencode(c.path), c.now, c.then) for c in changes], _list_modes(workspace, changes)
        )
        number = workspace.begin_record(started, msgspec.msgpack.encode(journal))
        failed = _carry_out(workspace, number, changes, dict(_decode_modes(journal)))
        return RewindResult(changes, list(rewind_plan.conflicts.values()), failed, number)


def _read_records(workspace: Workspace, session: str, first: int) -> list[Record]:
    return workspace.file.read_now(lambda db: database.list_records(db, session, first))


def _make_plan(workspace: Workspace, now: int, records: Sequence[Record], scope: Scope) -> Plan:
    def work(connection: apsw.Connection) -> Plan:
        return Planner(connection, now, scope).plan(records)

    return workspace.file.read_now(work)


def _list_modes(workspace: Workspace, changes: Sequence[Change]) -> list[tuple[bytes, int]]:
    """Return the final modes of the folders that must be opened for the work."""
    planned = {change.path: change for change in changes}
    modes: dict[str, int] = {}
    for change in changes:
        folder = change.path
        while folder := split_path(folder)[0]:
            if folder in modes:
                break
            known_state = workspace.find_known(folder)
            state = planned[folder].then if folder in planned else known_state.state if known_state else None
            if state is not None and state.kind == "folder":
                modes[folder] = state.mode
    return [(os.fsencode(path), mode) for path, mode in modes.items() if mode & _OWNER != _OWNER]


def _decode_modes(journal: _Journal) -> list[tuple[str, int]]:
    return [(os.fsdecode(path), mode) for path, mode in journal.modes]


def _carry_out(
    workspace: Workspace, number: int, changes: Sequence[Change], modes: dict[str, int]
) -> dict[str, str]:
    done = Restorer(workspace, number, modes).restore(changes)
    after = workspace.scan()
    workspace.file.write_now(lambda db: database.end_record(db, number, after))
    return done.failed


def finish_under_lock(workspace: Workspace) -> RewindResult | None:
    """Finish an interrupted rewind as `finish_interrupted`, for a caller that already holds `exclusive`."""
    pending = workspace.file.read_now(database.find_unfinished_rewind)
    if pending is None:
        return None
    record, raw = pending
    try:
        journal = from_values(msgspec.msgpack.decode(raw), _Journal)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(
            "the plan of a rewind that was cut off can't be read", hint="whet doctor"
        ) from error
    changes = [Change(os.fsdecode(entry.path), entry.now, entry.then) for entry in journal.entries]
    workspace.scan()
    failed = _carry_out(workspace, record.id, changes, dict(_decode_modes(journal)))
    return RewindResult(changes, [], failed, record.id)
