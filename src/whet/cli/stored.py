"""Open the store for a single command, and find the session that its arguments name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import apsw

from whet.clock import SystemClock
from whet.config.paths import Home
from whet.contract.errors import NotFound, StoreUnwritable
from whet.store import sessions
from whet.store.database import StateDatabase, has_store, open_store
from whet.terminal.wording import exact

T = TypeVar("T")
_PATIENCE_S = 30.0
_MAX_RECENT, _MAX_FOLDERS = 50, 3


def open_database(home: Home) -> closing[StateDatabase]:
    """Open the store for a `with` block, creating it if it does not exist. If the home can't be written, the
    store can still be read, and a write raises StoreUnwritable."""
    try:
        return closing(open_store(home, SystemClock()))
    except StoreUnwritable:
        if not home.database.exists():
            raise
        return closing(StateDatabase.open_unwritable(home.database, _PATIENCE_S))


def read(home: Home, query: Callable[[apsw.Connection], T]) -> T:
    """Open the store and return the result of `query`."""
    with open_database(home) as database:
        return database.read_now(query)


def write(home: Home, operation: Callable[[apsw.Connection], T]) -> T:
    """Open the store, run `operation` in a transaction and return its result. Durable on return."""
    with open_database(home) as database:
        return database.write_now(operation)


def require_store(home: Home, problem: str = "there are no sessions yet") -> None:
    """Raise NotFound if nothing is stored yet."""
    if not has_store(home):
        raise NotFound(problem, hint="begin one: whet")


def find_session(db: apsw.Connection, name: str) -> sessions.SessionRow:
    """Return the session whose id is or begins with `name`, or whose title it is.

    If `name` is empty, return the latest session of the current folder, as `whet --continue` does: without a
    name, a command must not change files of another folder. Raises NotFound if no session matches; its hint
    names the latest sessions of other folders.
    """
    if name:
        return sessions.get(db, sessions.resolve_id(db, name))
    folder = str(Path.cwd())
    latest = sessions.find_latest(db, workspace=folder)
    if latest is None:
        raise _missing_session_error(db, folder)
    return latest


def describe_session(row: sessions.SessionRow) -> str:
    """Return a session's id and folder, for the first line of a command's output."""
    return f"session {row.id} in {exact(row.workspace) or 'no folder'}"


def _missing_session_error(db: apsw.Connection, folder: str) -> NotFound:
    by_folder: dict[str, str] = {}
    for row in sessions.list_sessions(db, _MAX_RECENT):
        by_folder.setdefault(row.workspace, row.id)
    if not by_folder:
        return NotFound("there is no session yet", hint="begin one: whet")
    names = [f"{session_id} of {exact(path) or 'no folder'}" for path, session_id in by_folder.items()]
    hint = f"name a session: {', '.join(names[:_MAX_FOLDERS])}; all of them: whet sessions list"
    return NotFound(f"no session began in {folder}", hint=hint)
