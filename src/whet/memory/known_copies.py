"""Record which versions of the learning files a home of a team has seen.

Each home has its own copies of the files and stores this record beside them, so that it moves with them.
The texts that the files should hold are rows of the team's database.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from whet.config.paths import Home, replace_file
from whet.contract.errors import WhetError
from whet.contract.texts import NOT_JSON, from_json
from whet.memory import disk
from whet.memory.library import MAX_MAIN_BYTES
from whet.memory.reader import KnownFiles
from whet.memory.requests import FILES, decode_notes
from whet.memory.skill_format import NAME
from whet.store import learned, ledger
from whet.store.database import StateDatabase
from whet.store.learned import FileState
from whet.store.ledger import hash_text

_LARGEST_BYTES = 8_000_000
_FILE = ".seen.json"


class _SeenVersion(NamedTuple):
    """A version that was seen: its hash and, for notes, also the text."""

    hash: str
    text: str = ""


class KnownCopies(KnownFiles):
    """One profile's files in a home of a team, below `folder`.

    A file that is not recorded never existed, unless it is an older version of a skill's file that the
    ledger knows. For a file that is being written two versions are recorded, so that neither counts as an
    edit by hand after a crash. If the folder is removed together with its record, it is filled again.
    """

    def __init__(self, database: StateDatabase, profile: str, folder: Path) -> None:
        super().__init__(database, profile)
        self._folder = folder

    def get_state(self, path: str, current_hash: str | None = None) -> FileState:
        wanted_hash = super().get_state(path).wanted
        versions = self._read(path).get(path)
        if not versions:
            written = current_hash if current_hash and self._is_older(path, current_hash) else ""
        elif current_hash != wanted_hash and any(version.hash == current_hash for version in versions):
            written = current_hash or ""
        else:
            written = versions[0].hash
        return FileState(path, wanted_hash, written)

    def get_seen_hash(self, path: str, current_hash: str) -> str:
        versions = self._read(path).get(path)
        if current_hash == (versions[0].hash if versions else ""):
            return current_hash
        return super().get_seen_hash(path, current_hash)

    def read_base(self, state: FileState) -> bytes:
        versions = self._read(state.path).get(state.path, ())
        return next((version.text.encode() for version in versions if version.hash == state.written), b"")

    def list_pending_paths(self) -> list[str]:
        states = self._database.read_now(lambda db: learned.list_file_states(db, self._profile))
        versions = self._read("memories/") | self._read("skills/")
        wanted_hashes = dict.fromkeys(versions, "") | {state.path: state.wanted for state in states}
        return [
            path
            for path, key in wanted_hashes.items()
            if [key] != [version.hash for version in versions.get(path, [_SeenVersion("")])]
        ]

    def list_changed_skills(self) -> list[str]:
        versions, folder = self._read("skills/"), self._folder / "skills"
        names = {path.split("/")[1] for path in versions} | {child.name for child in folder.glob("*/")}
        return sorted(name for name in names if self._is_changed(folder / name, versions))

    def record_intent(self, path: str, content: bytes | None) -> None:
        before = self._read(path).get(path) or [_SeenVersion("")]
        self._write(path, [before[0], _make_version(path, content)])

    def record_seen(self, path: str, content: bytes | None) -> None:
        self._write(path, [] if content is None else [_make_version(path, content)])

    def _is_older(self, path: str, key: str) -> bool:
        top, _, name = path.partition("/")
        if top != "skills":
            return False
        rows = self._database.read_now(
            lambda db: ledger.select(db, profile=self._profile, kind="skill", item=name.partition("/")[0])
        )
        changes = (change for row in rows for change in row.changes)
        return any(change.path == path and key in (change.before, change.after) for change in changes)

    def _is_changed(self, folder: Path, versions: dict[str, list[_SeenVersion]]) -> bool:
        if not NAME.fullmatch(folder.name) or folder.is_symlink():
            return False
        try:
            content = disk.read(folder / "SKILL.md", MAX_MAIN_BYTES)
        except WhetError:
            return False  # the library reports the reason
        seen = versions.get(f"skills/{folder.name}/SKILL.md", [_SeenVersion("")])
        current_hash = "" if content is None else hash_text(content)
        return all(version.hash != current_hash for version in seen)

    def _read(self, path: str) -> dict[str, list[_SeenVersion]]:
        """Return the record that a file belongs to. An unreadable record counts as empty."""
        try:
            raw = disk.read(self._record_path(path), _LARGEST_BYTES)
            return from_json(raw or b"{}", dict[str, list[_SeenVersion]])
        except (WhetError, *NOT_JSON, msgspec.ValidationError):
            return {}

    def _write(self, path: str, versions: Sequence[_SeenVersion]) -> None:
        lists = self._read(path)
        lists[path] = [*versions]
        if not versions:
            del lists[path]
        replace_file(self._record_path(path), msgspec.json.encode(lists).decode(), mode=0o600)

    def _record_path(self, path: str) -> Path:
        return self._folder / path.split("/")[0] / _FILE


def _make_version(path: str, content: bytes | None) -> _SeenVersion:
    if content is None:
        return _SeenVersion("")
    return _SeenVersion(hash_text(content), decode_notes(content) if path in FILES.values() else "")


def copy_seen_files(home_database: StateDatabase, team: StateDatabase, home: Home, *, to_team: bool) -> None:
    """Copy the record of seen files from a home's own store to the files beside them, or the other way round.

    Files known before the copy are then known after it. It is safe to repeat.
    """

    def read_rows(connection: apsw.Connection) -> list[tuple[str, str, str]]:
        cursor = connection.execute("SELECT profile, path, written FROM learned_files")
        return [(profile, path, written) for profile, path, written in cursor.fetchall()]

    for profile, path, written in home_database.read_now(read_rows):
        copies = KnownCopies(team, profile, home.people / profile if profile else home.root)
        if to_team and written:
            copies.record_seen(path, home_database.read_now(partial(learned.read_text, key=written)))
        elif not to_team and (seen_hash := copies.get_state(path).written):
            home_database.write_now(
                partial(learned.set_written_hash, profile=profile, path=path, key=seen_hash)
            )
