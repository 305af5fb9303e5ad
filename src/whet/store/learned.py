"""Store records about learned items: the state of their files, the uses of skills, and the items and the
template that a session starts with.

Every function takes a connection inside a transaction. Paths are relative to a profile's folder. The memory
layer reads and writes the files themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import apsw
import msgspec

from whet.contract.errors import StoreCorrupt
from whet.store import rows, sessions
from whet.store.ledger import Owner, hash_text

ItemKind = Literal["memory", "user", "skill", "example"]
LABEL_CHARS = 120


class FileState(msgspec.Struct, frozen=True):
    """A learned file: the hash of its expected content (`wanted`) and of the content last seen (`written`).

    An empty hash stands for no file.
    """

    path: str
    wanted: str
    written: str


class Mark(msgspec.Struct, frozen=True):
    """Facts about a skill besides its files: its owner and its source."""

    name: str
    owner: Owner = "person"
    pinned: bool = False
    source: str = ""


class Use(msgspec.Struct, frozen=True):
    """A record that a skill's text was loaded in a turn."""

    session_id: str
    turn_id: str
    tool_call_id: str
    name: str
    file: str
    hash: str
    how: str
    at: str = ""


class ContextItem(msgspec.Struct, frozen=True):
    """A learned item in a session's context. `name` and `hash` identify its version."""

    kind: ItemKind
    name: str
    hash: str
    label: str = ""


_USE = ", ".join(Use.__struct_fields__[:-1])
_FILES = "SELECT path, wanted, written FROM learned_files WHERE profile = ?"
_MARKS = "SELECT name, owner, pinned, source FROM skill_marks WHERE profile = ?"


def store_text(connection: apsw.Connection, content: bytes) -> str:
    """Store a file's bytes under their hash, and return the hash."""
    key = hash_text(content)
    connection.execute("INSERT OR IGNORE INTO learned_texts VALUES (?, ?)", (key, content))
    return key


def read_text(connection: apsw.Connection, key: str) -> bytes:
    """Return the bytes with this hash, or no bytes for an empty one. Raises StoreCorrupt if they are
    missing."""
    if not key:
        return b""
    row = connection.execute("SELECT content FROM learned_texts WHERE hash = ?", (key,)).fetchone()
    if row is None:
        raise StoreCorrupt(f"the ledger's text {key} is missing", hint="`whet doctor` shows the way")
    return bytes(row[0])


def get_file_state(connection: apsw.Connection, profile: str, path: str) -> FileState:
    """Return a file's state. For an unknown file both hashes are empty."""
    row = connection.execute(f"{_FILES} AND path = ?", (profile, path)).fetchone()
    return FileState(path, "", "") if row is None else FileState(*row)


def list_file_states(connection: apsw.Connection, profile: str, under: str = "") -> list[FileState]:
    """Return the states of the files below a folder (with its slash), sorted by path."""
    rows = connection.execute(
        f"{_FILES} AND substr(path, 1, ?) = ? ORDER BY path", (profile, len(under), under)
    )
    return [FileState(*row) for row in rows]


def list_pending_files(connection: apsw.Connection, profile: str) -> list[FileState]:
    """Return the files that do not have their expected content yet."""
    rows = connection.execute(f"{_FILES} AND wanted <> written", (profile,))
    return [FileState(*row) for row in rows]


def set_expected_hash(connection: apsw.Connection, profile: str, path: str, key: str) -> None:
    """Store the hash of a file's expected content."""
    connection.execute(
        "INSERT INTO learned_files VALUES (?, ?, ?, '')"
        " ON CONFLICT (profile, path) DO UPDATE SET wanted = excluded.wanted",
        (profile, path, key),
    )


def set_written_hash(connection: apsw.Connection, profile: str, path: str, key: str) -> None:
    """Store the hash of a file's present content. A file that neither exists nor should exist is
    forgotten."""
    connection.execute(
        "INSERT INTO learned_files VALUES (?, ?, '', ?)"
        " ON CONFLICT (profile, path) DO UPDATE SET written = excluded.written",
        (profile, path, key),
    )
    connection.execute(
        "DELETE FROM learned_files WHERE profile = ? AND path = ? AND wanted = '' AND written = ''",
        (profile, path),
    )


def get_mark(connection: apsw.Connection, profile: str, name: str) -> Mark:
    """Return a skill's mark. A skill without one belongs to a person."""
    row = connection.execute(f"{_MARKS} AND name = ?", (profile, name)).fetchone()
    return Mark(name) if row is None else _read_mark(*row)


def list_marks(connection: apsw.Connection, profile: str) -> dict[str, Mark]:
    """Return every mark by the skill's name."""
    return {row[0]: _read_mark(*row) for row in connection.execute(_MARKS, (profile,))}


def _read_mark(name: str, owner: Owner, pinned: int, source: str) -> Mark:
    return Mark(name, owner, bool(pinned), source)


def set_mark(connection: apsw.Connection, profile: str, new: Mark) -> None:
    """Store a skill's mark."""
    connection.execute(
        "INSERT OR REPLACE INTO skill_marks VALUES (?, ?, ?, ?, ?)",
        (profile, new.name, new.owner, int(new.pinned), new.source),
    )


def add_use(connection: apsw.Connection, profile: str, use: Use, now: str) -> None:
    """Store the record of a load."""
    connection.execute(
        f"INSERT INTO skill_uses (profile, at, {_USE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (profile, now, *msgspec.structs.astuple(use)[:-1]),
    )


def list_uses(connection: apsw.Connection, *, name: str = "", limit: int = -1) -> list[Use]:
    """Return the records of loads of one skill or all, newest first."""
    where, values = ("WHERE name = ?", (name,)) if name else ("", ())
    rows = connection.execute(
        f"SELECT {_USE}, at FROM skill_uses {where} ORDER BY id DESC LIMIT ?", (*values, limit)
    )
    return [Use(*row) for row in rows]


def count_uses(connection: apsw.Connection, profile: str) -> dict[str, int]:
    """Count the loads of each skill."""
    rows = connection.execute(
        "SELECT name, count(*) FROM skill_uses WHERE profile = ? GROUP BY name", (profile,)
    )
    return {row[0]: row[1] for row in rows}


def read_report_position(connection: apsw.Connection, profile: str) -> int:
    """Return the id of the ledger's last change that was reported to the person, or 0."""
    sql = "SELECT ledger FROM learned_told WHERE profile = ?"
    return rows.read_value(connection, sql, profile) or 0


def set_report_position(connection: apsw.Connection, profile: str, row_id: int) -> None:
    """Store the id of the ledger's last change that was reported to the person."""
    connection.execute("INSERT OR REPLACE INTO learned_told VALUES (?, ?)", (profile, row_id))


def record_items(
    connection: apsw.Connection,
    session_id: str,
    present: Iterable[ContextItem],
    held_out: Iterable[ContextItem] = (),
    *,
    randomised: bool = False,
) -> None:
    """Store the items that a session began with and those held out by chance. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    for items, is_held_out in ((present, 0), (held_out, 1)):
        for item in items:
            connection.execute(
                "INSERT OR IGNORE INTO context_items (kind, name, hash, label) VALUES (?, ?, ?, ?)",
                (item.kind, item.name, item.hash, item.label[:LABEL_CHARS]),
            )
            connection.execute(
                "INSERT OR REPLACE INTO session_items"
                " SELECT ?, id, ?, ? FROM context_items WHERE kind = ? AND name = ? AND hash = ?",
                (key, is_held_out, int(randomised), item.kind, item.name, item.hash),
            )


def list_held_out_names(connection: apsw.Connection, session_id: str) -> frozenset[str]:
    """Return the names of the items that were held out from a session by chance."""
    rows = connection.execute(
        "SELECT i.name FROM session_items u JOIN context_items i ON i.id = u.item"
        " WHERE u.session = ? AND u.held_out",
        (sessions.key_of(connection, session_id),),
    )
    return frozenset(name for (name,) in rows)


def set_next(connection: apsw.Connection, workspace: str, template: str, now: str) -> None:
    """Start the next new session in `workspace` with this template."""
    connection.execute(
        "INSERT OR REPLACE INTO warm_next (workspace, template, at) VALUES (?, ?, ?)",
        (workspace, template, now),
    )


def read_next(connection: apsw.Connection, workspace: str) -> str:
    """Return the template for the next session in `workspace`, or an empty string."""
    sql = "SELECT template FROM warm_next WHERE workspace = ?"
    return rows.read_value(connection, sql, workspace) or ""


def forget_next(connection: apsw.Connection, workspace: str, template: str = "") -> None:
    """Undo `set_next`. With `template`, only if it is that one, in any workspace."""
    if template:
        connection.execute("DELETE FROM warm_next WHERE template = ?", (template,))
    else:
        connection.execute("DELETE FROM warm_next WHERE workspace = ?", (workspace,))
