"""Plans how to undo steps, path by path, without touching a file.

The records are undone from last to first. If a path is still as the record left it, it is restored to its
state before. If it was changed since, the two changes are merged if they don't overlap. Otherwise it is a
conflict, which is left as it is unless the person chooses the record's side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from difflib import SequenceMatcher

import apsw
import msgspec

from whet.rewind import database
from whet.rewind.contents import read_content
from whet.rewind.database import Record
from whet.rewind.ownership import EditedPaths, find_own_paths, is_overlapping
from whet.rewind.states import PathState, printable_path, split_path

SINCE = "changed since by someone else"
AT_ONCE = "also changed by another session at the same time"
UNRECORDED_NOW = "what is there now is not recorded, so this could not be taken back again"
UNRECORDED_THEN = "what was there is not recorded"
_LARGEST_BYTES = 2_000_000


class Change(msgspec.Struct, frozen=True):
    """The change of one path; a state of None means that it does not exist. `merged`: a later change is
    kept."""

    path: str
    now: PathState | None
    then: PathState | None
    merged: bool = False


class Conflict(msgspec.Struct, frozen=True):
    """A path that is left as it is, and why. `can_force`: it can be restored anyway."""

    path: str
    why: str
    can_force: bool


class Plan(msgspec.Struct):
    """The plan of a rewind. `texts` are contents that exist only as the result of a merge, by hash."""

    changes: dict[str, Change] = {}
    conflicts: dict[str, Conflict] = {}
    texts: dict[bytes, bytes] = {}


class Scope(msgspec.Struct, frozen=True):
    """What a rewind may touch: records of the `family` of sessions do not conflict, `force` uses the record's
    side of conflicts, `files` are the names, as they are shown, of the files to restore (empty: all), and
    `edited` names what tools edited in steps that overlap."""

    family: Collection[str]
    force: bool
    files: Collection[str]
    edited: EditedPaths


class Planner:
    """Plans on one connection, inside a transaction. `now` is the version of a scan that was just taken."""

    def __init__(self, connection: apsw.Connection, now: int, scope: Scope) -> None:
        self._db = connection
        self._now = now
        self._family = frozenset(scope.family)
        self._force = scope.force
        self._files = frozenset(scope.files)
        self._edited = scope.edited
        self._plan = Plan()
        self._reached: dict[str, PathState | None] = {}
        self._is_merged: set[str] = set()

    def plan(self, records: Sequence[Record]) -> Plan:
        """Return the plan that undoes `records`, which are a session's last ones, oldest first."""
        others = self._find_other_steps(records)
        for record in reversed(records):
            at_once = set[str]()
            for other in others:
                if is_overlapping(record, other):
                    at_once |= self._find_paths_of_other(other)
            for path in find_own_paths(self._db, record, others, self._edited):
                if not self._files or self._is_chosen(record, path):
                    self._take_back(record, path, is_shared=path in at_once)
        for path, then in self._reached.items():
            now = database.state_at(self._db, path, self._now)
            if now != then and path not in self._plan.conflicts:
                self._plan.changes[path] = Change(path, now, then, path in self._is_merged)
        self._refuse_impossible()
        return self._plan

    def _is_chosen(self, record: Record, path: str) -> bool:
        """Return whether a path is one of the files, or a folder that was removed with one of them."""
        name = printable_path(path)
        if name in self._files:
            return True
        before = database.state_at(self._db, path, record.before)
        is_parent = any(file.startswith(f"{name}/") for file in self._files)
        return is_parent and before is not None and before.kind == "folder"

    def _find_other_steps(self, records: Sequence[Record]) -> list[Record]:
        if not records:
            return []
        recent = database.list_records_since(self._db, min(record.before for record in records))
        return [other for other in recent if other.session not in self._family and other.kind == "step"]

    def _find_paths_of_other(self, other: Record) -> set[str]:
        """Return the paths that another session's step changed, without those that tools of further sessions
        changed meanwhile."""
        recent = database.list_records_since(self._db, other.before) if self._edited else []
        further = [record for record in recent if record.kind == "step" and record.session != other.session]
        return find_own_paths(self._db, other, further, self._edited)

    def _take_back(self, record: Record, path: str, *, is_shared: bool) -> None:
        if path in self._plan.conflicts:
            return
        before = database.state_at(self._db, path, record.before)
        after = database.state_at(self._db, path, record.after)
        current = (
            self._reached[path] if path in self._reached else database.state_at(self._db, path, self._now)
        )
        if is_shared and not self._force:
            self._refuse(path, AT_ONCE)
        elif current in (after, before) or self._force:
            self._reached[path] = before
        elif (joint := self._merge(after, current, before)) is not None:
            self._reached[path] = joint
            self._is_merged.add(path)
        else:
            self._refuse(path, SINCE)

    def _merge(
        self, base: PathState | None, mine: PathState | None, other: PathState | None
    ) -> PathState | None:
        if base is None or mine is None or other is None:
            return None
        if not base.kind == mine.kind == other.kind:
            return None
        mode = other.mode if mine.mode == base.mode else mine.mode
        if base.content == mine.content or base.content == other.content or mine.content == other.content:
            content = other.content if base.content == mine.content else mine.content
            size = other.size if base.content == mine.content else mine.size
            return PathState(mine.kind, mode, size, content)
        if base.kind != "file":
            return None
        texts = [self._text(state) for state in (base, mine, other)]
        if texts[0] is None or texts[1] is None or texts[2] is None:
            return None
        joint = merge_texts(texts[0], texts[1], texts[2])
        if joint is None:
            return None
        hash_ = hashlib.sha256(joint).digest()
        self._plan.texts[hash_] = joint
        return PathState("file", mode, len(joint), hash_)

    def _text(self, state: PathState) -> bytes | None:
        return self._plan.texts.get(state.content) or read_content(self._db, state)

    def _refuse(self, path: str, why: str, *, can_force: bool = True) -> None:
        self._plan.conflicts[path] = Conflict(path, why, can_force)
        self._plan.changes.pop(path, None)

    def _refuse_impossible(self) -> None:
        """Refuse changes that are not possible, and repeat until no further ones depend on them."""
        for path, change in list(self._plan.changes.items()):
            if change.then is not None and change.then.kind == "left_out":
                self._refuse(path, UNRECORDED_THEN, can_force=False)
            elif change.now is not None and change.now.kind == "left_out" and not self._force:
                self._refuse(path, UNRECORDED_NOW)
        before = -1
        while before != len(self._plan.changes):
            before = len(self._plan.changes)
            for path, change in list(self._plan.changes.items()):
                if why := self._find_obstacle(path, change):
                    self._refuse(path, why, can_force=False)

    def _find_obstacle(self, path: str, change: Change) -> str:
        """Return why a path can't be restored because of another one in its way, or an empty string."""
        if _leaves_folder(change):
            for below in database.find_paths_below(self._db, path):
                planned = self._plan.changes.get(below)
                if planned is None or planned.then is not None:
                    return "other files are in it"
        if change.then is not None:
            folder = path
            while folder := split_path(folder)[0]:
                planned = self._plan.changes.get(folder)
                state = planned.then if planned else database.state_at(self._db, folder, self._now)
                if state is not None and state.kind != "folder":
                    return f"{folder} is not a folder now"
        return ""


def _leaves_folder(change: Change) -> bool:
    is_folder = [side is not None and side.kind == "folder" for side in (change.now, change.then)]
    return is_folder == [True, False]


def merge_texts(base: bytes, mine: bytes, other: bytes) -> bytes | None:
    """Return a text with both sides' changes of `base`, or None if they touch each other or it is not
    text."""
    if mine == other or other == base:
        return mine
    if mine == base:
        return other
    if max(len(base), len(mine), len(other)) > _LARGEST_BYTES or any(
        b"\0" in text for text in (base, mine, other)
    ):
        return None
    lines = base.splitlines(keepends=True)
    edits = sorted(
        [*_list_edits(lines, mine), *_list_edits(lines, other)], key=lambda edit: (edit[0], edit[1])
    )
    result: list[bytes] = []
    at = 0
    last: tuple[int, int, list[bytes]] | None = None
    for edit in edits:
        first, end, text = edit
        if edit == last:
            continue  # both sides made the same change
        if last is not None and first <= last[1]:
            return None
        result += [*lines[at:first], *text]
        at, last = end, edit
    return b"".join([*result, *lines[at:]])


def _list_edits(lines: list[bytes], text: bytes) -> list[tuple[int, int, list[bytes]]]:
    theirs = text.splitlines(keepends=True)
    matcher = SequenceMatcher(None, lines, theirs, autojunk=False)
    return [
        (low, high, theirs[first:last])
        for tag, low, high, first, last in matcher.get_opcodes()
        if tag != "equal"
    ]
