"""Keep the files of learning and the ledger in step after crashes and edits by hand.

A file holds either the text that was last written (nothing to do), the text that it should hold (the
program crashed before it recorded the write), or something else. In the last case a person edited it, and
the edit is entered in the ledger as theirs before anything is written. A change that waits for its file is
merged into the person's text. One journal serves one folder and one profile. Permissions are checked
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from whet.config.paths import decode_text, lock_folder
from whet.contract.errors import WhetError
from whet.contract.origin import Origin
from whet.memory import disk, notes
from whet.memory.disk import Moved
from whet.memory.notes import EntryChange
from whet.memory.reader import MemoryReader
from whet.memory.requests import Target, decode_notes
from whet.memory.skill_format import BadSkill, list_files
from whet.store import learned, ledger
from whet.store.learned import FileState
from whet.store.ledger import FileChange, NewRow, hash_text

_MAX_ROWS = 10
_TRIES = 5
_HAND = Origin(write_origin="user", execution_context="edited by hand")
_REPLACES = "it replaces what came in between (change {})"


class Journal:
    """Syncs the files of a reader's profile with the ledger, and explains unusable ones in the reader's
    `problems`.

    Synchronous: call it off the event loop's thread.
    """

    def __init__(self, reader: MemoryReader) -> None:
        self._database = reader.database
        self._now = reader.now
        self._folder = reader.folder
        self._profile = reader.profile
        self._seen = reader.seen
        self._problems = reader.problems

    def sync(self, pending_paths: Sequence[str], skills: Sequence[str]) -> None:
        """Sync both notes files, the `pending_paths` and these skills with the ledger.

        Raises StoreError for the database only.
        """
        with lock_folder(self._folder / "memories"):
            for path in dict.fromkeys([*notes.FILES.values(), *pending_paths]):
                self._sync_file(path)
            for path in (path for name in skills for path in self._list_skill_paths(name)):
                self._sync_file(path)

    def _sync_file(self, path: str) -> None:
        for _ in range(_TRIES):
            try:
                if self._sync_step(path):
                    self._problems.pop(path, None)
                    return
            except Moved:
                continue
            except WhetError as error:
                self._problems[path] = f"{error.message}; {error.hint}"
                return
        self._problems[path] = f"{self._folder / path} keeps changing; what was learned waits in the ledger"

    def _sync_step(self, path: str) -> bool:
        """Do one step of the comparison. Returns True when file and ledger agree."""
        full_path = self._folder / path
        disk.restore_aside(full_path)
        content_now = disk.read(full_path)
        current_hash = "" if content_now is None else hash_text(content_now)
        state = self._seen.get_state(path, current_hash)
        if current_hash == state.wanted:
            if state.written != current_hash:
                self._seen.record_seen(path, content_now)
            return True
        if current_hash == state.written:
            content: bytes | None = None
            if state.wanted:
                content = self._database.read_now(lambda db: learned.read_text(db, state.wanted))
            self._seen.record_intent(path, content)
            disk.swap(full_path, current_hash, content)
            if content is None:
                disk.drop_empty(full_path.parent, self._folder / "skills")
            self._seen.record_seen(path, content)
            return True
        if content_now is not None and path in notes.FILES.values():
            decode_text(content_now, full_path)  # raises if the person's file is not text
        base = self._seen.read_base(state)
        if self._database.write_now(lambda db: self._enter_edit(db, state, content_now, base)):
            self._seen.record_seen(path, content_now)
        return False

    def _enter_edit(
        self, connection: apsw.Connection, state: FileState, content_now: bytes | None, base: bytes
    ) -> bool:
        """Enter an edit by hand. Returns False if another process was faster and nothing was done."""
        if learned.get_file_state(connection, self._profile, state.path).wanted != state.wanted:
            return False
        key = learned.store_text(connection, content_now) if content_now is not None else ""
        target: Target | None = next((name for name, file in notes.FILES.items() if file == state.path), None)
        if target is not None:
            new_hash = self._enter_notes(connection, state, target, base, content_now)
        else:
            new_hash = key
            self._enter_skill(connection, state, key)
        learned.set_expected_hash(connection, self._profile, state.path, new_hash)
        return True

    def _enter_notes(
        self,
        connection: apsw.Connection,
        state: FileState,
        target: Target,
        base: bytes,
        content_now: bytes | None,
    ) -> str:
        before = decode_notes(base)
        after = decode_notes(content_now or b"")
        ours = decode_notes(learned.read_text(connection, state.wanted))
        others = notes.diff_entries(before, ours) if state.wanted != state.written else []
        # A change that the pending ones already contain was entered before a crash, or is a duplicate.
        existing = {entry.statement for entry in notes.parse_entries(ours)} if others else set[str]()
        edits = [
            edit
            for edit in notes.diff_entries(before, after)
            if edit not in others and (edit.after not in existing or edit.before in existing)
        ]
        is_whole = bool(edits) and (len(edits) > _MAX_ROWS or content_now is None)
        for edit in [EntryChange(before, after)] if is_whole else edits:
            action = "hand_edit" if is_whole else edit.action
            self._insert(
                connection, NewRow("memory", target, action, "active", _HAND, edit.before, edit.after)
            )
        merged, lost = notes.apply_changes(after, target, others)
        for change in lost:
            if not self._undo_learned_version(connection, target, change.after):
                merged = notes.append_entry(merged, target, change.after)
        if merged == after:
            return hash_text(content_now) if content_now is not None else ""
        return learned.store_text(connection, merged.encode())

    def _enter_skill(self, connection: apsw.Connection, state: FileState, key: str) -> None:
        if not state.wanted and not state.written:
            return  # seen for the first time: a person's own skill, kept as it is
        name = state.path.split("/")[1]
        change = FileChange(state.path, state.wanted, key)
        texts = (learned.read_text(connection, text_hash) for text_hash in (state.wanted, key))
        before, after = (text.decode("utf-8", "replace") for text in texts)
        new = NewRow("skill", name, "hand_edit", "active", _HAND, before, after, changes=(change,))
        if state.wanted != state.written:
            rows = ledger.select(connection, 1, profile=self._profile, kind="skill", item=name)
            new = msgspec.structs.replace(new, reason="; ".join(_REPLACES.format(row.id) for row in rows))
        self._insert(connection, new)

    def _undo_learned_version(self, connection: apsw.Connection, target: Target, after: str) -> bool:
        """Undo the learned version of an entry that was also edited by hand. Returns False if the other
        version may be an edit by hand, too."""
        for row in ledger.select(connection, profile=self._profile, kind="memory", item=target):
            if row.after == after and row.state == "active" and row.origin != _HAND:
                reason = "the entry was changed by hand at the same time; the hand's version stands"
                ledger.set_state(connection, row.id, "undone", reason=reason)
                return True
        return False

    def _insert(self, connection: apsw.Connection, new: NewRow) -> None:
        hashes = {"base_hash": hash_text(new.before), "hash": hash_text(new.after)}
        row = msgspec.structs.replace(new, trust="user", profile=self._profile, **hashes)
        ledger.insert_row(connection, row, self._now())

    def _list_skill_paths(self, name: str) -> list[str]:
        top, root = f"skills/{name}/", self._folder / "skills" / name
        states = self._database.read_now(lambda db: learned.list_file_states(db, self._profile, top))
        try:
            files = list_files(root) if root.is_dir() and not root.is_symlink() else []
        except BadSkill as error:
            self._problems[f"skills/{name}"] = f"{error.message}; {error.hint}"
            return []
        self._problems.pop(f"skills/{name}", None)
        return list(dict.fromkeys([*(state.path for state in states), *(top + path for path in files)]))
