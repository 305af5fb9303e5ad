"""Where notes hold: a note of MEMORY.md that was learned in a session holds in that session's repository or
folder, and below it; one that the person wrote by hand, or changed, holds everywhere.

The place is read from the ledger, so the file stays as the person sees and edits it. USER.md is about the
person and holds everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import apsw

from whet.config.paths import list_project_folders
from whet.contract.texts import flat
from whet.store import ledger

Places = Mapping[str, frozenset[str]]
"""The folders in which a note was learned, by its statement; "" is everywhere."""


def read_places(connection: apsw.Connection, profile: str) -> Places:
    """Return the places of the notes that are in force. Notes without an entry hold everywhere."""
    rows = ledger.list_note_folders(connection, profile)
    roots = {folder: _find_root(folder) for folder in {folder for _, folder in rows}}
    folders: dict[str, frozenset[str]] = {}
    for statement, folder in rows:
        folders[statement] = folders.get(statement, frozenset()) | {roots[folder]}
    return {statement: places for statement, places in folders.items() if "" not in places}


def holds_in(places: Places, statement: str, folder: str) -> bool:
    """Return whether a note holds in a folder; in an unknown one (empty) all do."""
    known = places.get(statement)
    return not folder or known is None or any(_is_below(folder, place) for place in known)


def group_by_folder(places: Places, statements: Iterable[str]) -> dict[str, list[str]]:
    """Return the statements that hold only in some folders, by folder."""
    groups: dict[str, list[str]] = {}
    for statement in statements:
        for folder in sorted(places.get(statement, ())):
            groups.setdefault(folder, []).append(statement)
    return groups


def describe_groups(groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return lines that say which notes hold only in which folder; empty if all hold everywhere."""
    lines: list[str] = []
    for folder, statements in groups.items():
        lines += [f"Only in {folder} and below:", *(f"- {flat(text)}" for text in statements)]
    return lines


def _find_root(folder: str) -> str:
    """Return this user's repository that a folder belongs to, or the folder itself; "" for "", everywhere."""
    return str(list_project_folders(Path(folder))[0]) if folder else ""


def _is_below(folder: str, place: str) -> bool:
    return folder == place or folder.startswith(place.rstrip("/") + "/")
