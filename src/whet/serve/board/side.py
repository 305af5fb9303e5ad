"""Read the list of sessions at the side of a page: pinned sessions first, then the others by folder."""

from __future__ import annotations

from pathlib import PurePath

import apsw
import msgspec

from whet.store import pins, sessions

_MAX_LISTED, _MAX_PINNED = 60, 20


class SideGroup(msgspec.Struct, frozen=True):
    """The sessions of one folder. `name` is the folder's name, after its parent's if two folders have the
    same name."""

    name: str
    folder: str
    rows: tuple[sessions.SessionRow, ...]


class SideList(msgspec.Struct, frozen=True):
    """The pinned sessions, and the newest others by folder. `has_more`: there are older sessions."""

    pinned: tuple[sessions.SessionRow, ...] = ()
    groups: tuple[SideGroup, ...] = ()
    has_more: bool = False


def read_side(connection: apsw.Connection) -> SideList:
    """Return the list. The folder with the newest session comes first."""
    pinned = pins.list_pinned(connection, _MAX_PINNED)
    pinned_ids = {row.id for row in pinned}
    rows = sessions.list_sessions(connection, _MAX_LISTED + 1)
    by_folder: dict[str, list[sessions.SessionRow]] = {}
    for row in rows[:_MAX_LISTED]:
        if row.id not in pinned_ids:
            by_folder.setdefault(row.workspace, []).append(row)
    names = [PurePath(folder).name for folder in by_folder]
    groups = [
        SideGroup(_name_of(folder, is_unique=names.count(PurePath(folder).name) == 1), folder, tuple(members))
        for folder, members in by_folder.items()
    ]
    return SideList(tuple(pinned), tuple(groups), len(rows) > _MAX_LISTED)


def _name_of(folder: str, *, is_unique: bool) -> str:
    path = PurePath(folder)
    return (path.name if is_unique else f"{path.parent.name}/{path.name}") or "No folder"
