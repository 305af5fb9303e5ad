"""Keeps the files of learning and the ledger in step, whatever crashed or was edited by hand between them.

A file holds what was last written (nothing to do), what it should hold (written, and the program died before
it noted so), or something else: then a person edited it, which is entered in the ledger as theirs before
anything is written. A change that waits for its file is carried over to the person's text. One folder and
one profile; it does not know who may change what.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw
import msgspec

from whet.clock import Clock, iso
from whet.contract.errors import StoreError
from whet.contract.origin import Origin
from whet.memory import disk, merging, notes
from whet.memory.disk import Moved, UnreadableFile
from whet.memory.folders import files_of
from whet.memory.requests import Target
from whet.store import learned, ledger
from whet.store.database import StateDatabase
from whet.store.learned import FileState
from whet.store.ledger import FileChange, NewRow, digest

_MOST_ROWS = 10
_TRIES = 5
_HAND = Origin(write_origin="user", execution_context="edited by hand")


class Journal:
    """One profile's files below `folder`. Synchronous; call it off the event loop's thread."""

    def __init__(
        self, database: StateDatabase, clock: Clock, folder: Path, profile: str, troubles: dict[str, str]
    ) -> None:
        """`troubles` takes what can't be read or written, by path; what is well is taken out of it."""
        self._database = database
        self._clock = clock
        self._folder = folder
        self._profile = profile
        self._troubles = troubles

    def settle(self, waiting: Sequence[str], skills: Sequence[str]) -> None:
        """Bring both notes, the `waiting` files and these skills into step with the ledger.

        Raises StoreError for the database only.
        """
        with disk.locked(self._folder / "memories"):
            for path in dict.fromkeys([*notes.FILES.values(), *waiting]):
                self._settle_file(path)
            for name in skills:
                for path in self._skill_paths(name):
                    self._settle_file(path)

    def _settle_file(self, path: str) -> None:
        for _ in range(_TRIES):
            try:
                if self._step(path):
                    self._troubles.pop(path, None)
                    return
            except Moved:
                continue
            except (UnreadableFile, StoreError) as error:
                self._troubles[path] = f"{error.message}; {error.hint}"
                return
        self._troubles[path] = f"{self._folder / path} keeps changing; what was learned waits in the ledger"

    def _step(self, path: str) -> bool:
        """Go one step; True when file and ledger agree."""
        place = self._folder / path
        disk.restore_aside(place)
        there = disk.read(place)
        seen = "" if there is None else digest(there)
        state = self._state(path)
        if seen == state.wanted:
            if state.written != seen:
                self._database.write_now(lambda db: learned.saw(db, self._profile, path, seen))
            return True
        if seen == state.written:
            wanted = state.wanted
            content = self._database.read_now(lambda db: learned.text(db, wanted)) if wanted else None
            disk.swap(place, seen, content)
            if content is None:
                disk.drop_empty(place.parent, self._folder / "skills")
            self._database.write_now(lambda db: learned.saw(db, self._profile, path, wanted))
            return False
        if there is not None and path in notes.FILES.values():
            disk.as_text(there, place)
        self._database.write_now(lambda db: self._enter(db, state, there))
        return False

    def _state(self, path: str) -> FileState:
        return self._database.read_now(lambda db: learned.state(db, self._profile, path))

    def _enter(self, connection: apsw.Connection, seen: FileState, there: bytes | None) -> None:
        """Enter an edit by hand. Nothing is done where another process was faster."""
        if learned.state(connection, self._profile, seen.path) != seen:
            return
        key = learned.keep_text(connection, there) if there is not None else ""
        target = _target_of(seen.path)
        if target is not None:
            wanted = self._enter_notes(connection, seen, target, there)
        else:
            wanted = key
            self._enter_skill(connection, seen, key)
        learned.want(connection, self._profile, seen.path, wanted)
        learned.saw(connection, self._profile, seen.path, key)

    def _enter_notes(
        self, connection: apsw.Connection, seen: FileState, target: Target, there: bytes | None
    ) -> str:
        before = notes.decoded(learned.text(connection, seen.written))
        after = notes.decoded(there or b"")
        rows = merging.changes(before, after)
        if len(rows) > _MOST_ROWS or (there is None and rows):
            self._insert(connection, NewRow("memory", target, "hand_edit", "active", _HAND, before, after))
        else:
            for row in rows:
                new = NewRow("memory", target, row.action, "active", _HAND, row.before, row.after)
                self._insert(connection, new)
        if seen.wanted == seen.written:
            return digest(there) if there is not None else ""
        ours = notes.decoded(learned.text(connection, seen.wanted))
        merged, lost = merging.carry(after, target, merging.changes(before, ours))
        for change in lost:
            self._overtaken(connection, target, change.after)
        if merged == after:
            return digest(there) if there is not None else ""
        return learned.keep_text(connection, merged.encode())

    def _enter_skill(self, connection: apsw.Connection, seen: FileState, key: str) -> None:
        if not seen.wanted and not seen.written:
            return  # seen for the first time: a person's own, as it is
        name = seen.path.split("/")[1]
        change = FileChange(seen.path, seen.wanted, key)
        before, after = (learned.text(connection, k).decode("utf-8", "replace") for k in (seen.wanted, key))
        self._insert(
            connection, NewRow("skill", name, "hand_edit", "active", _HAND, before, after, changes=(change,))
        )

    def _overtaken(self, connection: apsw.Connection, target: Target, after: str) -> None:
        for row in ledger.select(connection, profile=self._profile, kind="memory", item=target):
            if row.after == after and row.state == "active":
                reason = "the entry was changed by hand at the same time; the hand's version stands"
                ledger.set_state(connection, row.id, "undone", reason=reason)
                return

    def _insert(self, connection: apsw.Connection, new: NewRow) -> None:
        full = msgspec.structs.replace(
            new, base_hash=digest(new.before), hash=digest(new.after), trust="user", profile=self._profile
        )
        ledger.insert(connection, full, iso(self._clock.now()))

    def _skill_paths(self, name: str) -> list[str]:
        known = self._database.read_now(lambda db: learned.states(db, self._profile, f"skills/{name}/"))
        found = dict.fromkeys(state.path for state in known)
        root = self._folder / "skills" / name
        if root.is_dir() and not root.is_symlink():
            found |= dict.fromkeys(f"skills/{name}/{path}" for path in files_of(root))
        return list(found)


def _target_of(path: str) -> Target | None:
    return next((target for target, file in notes.FILES.items() if file == path), None)
