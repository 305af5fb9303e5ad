"""Finds the step that changed a file if steps of several sessions overlap in one workspace.

A record covers all changes of the workspace between its two versions. A change that falls within a shorter
step of another session belongs to that step, if its own tools only edit files and it names the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import apsw

from whet.rewind import database
from whet.rewind.database import Record
from whet.rewind.states import printable_path, split_path

StepKey = tuple[str, int, int]
"""Session, turn and number of a step."""
EditedPaths = Mapping[StepKey, Collection[str]]
"""The printable names of files that tools edited, and of the folders above them, by step."""


def step_key(record: Record) -> StepKey:
    """Return the step of a record."""
    return record.session, record.turn, record.step


def is_overlapping(record: Record, other: Record) -> bool:
    """Return whether two records have versions in common."""
    return other.before < record.after and other.after > record.before


def add_folders(names: Iterable[str]) -> set[str]:
    """Return names of files and of all folders above them."""
    paths: set[str] = set()
    for name in names:
        path = name
        while path:
            paths.add(path)
            path = split_path(path)[0]
    return paths


def find_overlapping_steps(
    connection: apsw.Connection, session: str, family: Collection[str]
) -> tuple[list[Record], list[Record]]:
    """Return the steps of a session that overlap with steps outside of its family, and those steps."""
    own = [
        record
        for record in database.list_records(connection, session)
        if record.kind == "step" and record.after > record.before
    ]
    if not own:
        return [], []
    recent = database.list_records_since(connection, min(record.before for record in own))
    others = [
        record for record in recent if record.kind == "step" and record.session not in {session, *family}
    ]
    return (
        [record for record in own if any(is_overlapping(record, other) for other in others)],
        [other for other in others if any(is_overlapping(other, record) for record in own)],
    )


def find_own_paths(
    connection: apsw.Connection, record: Record, others: Iterable[Record], edited: EditedPaths
) -> set[str]:
    """Return the paths that a record changed, without those that only the tools of `others` changed."""
    paths = database.find_changed_paths(connection, record.before, record.after)
    if record.kind != "step":
        return paths
    own_names = edited.get(step_key(record), ())
    owners = [
        (other, names)
        for other in others
        if is_overlapping(record, other) and (names := edited.get(step_key(other)))
    ]
    foreign: set[str] = set()
    for path in paths if owners else ():
        name = printable_path(path)
        spans = [(other.before, other.after) for other, names in owners if name in names]
        if name in own_names or not spans:
            continue
        versions = database.list_change_versions(connection, path, record.before, record.after)
        if all(any(first < version <= last for first, last in spans) for version in versions):
            foreign.add(path)
    return paths - foreign
