"""What a call makes of files: text before and after, and the hash that binds a yes to what was shown."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import msgspec


class TextChange(msgspec.Struct, frozen=True):
    """What becomes of one file. `old` and `new` are its text, None where there is no file, or no text.

    `path` is its name for a person, `place` the absolute one, `before` the hash of its bytes now (empty: no
    file); `note` says what the texts can't, as that something binary is replaced.
    """

    path: str
    place: str
    old: str | None
    new: str | None
    before: str = ""
    note: str = ""


class FileEdit(msgspec.Struct, frozen=True):
    """An edit that was made, as a person reads it: lines added and removed, and a diff that may be cut."""

    path: str
    added: int
    removed: int
    diff: str = ""


def hash_of(data: bytes) -> str:
    """Give the hash of a file's bytes."""
    return hashlib.sha256(data).hexdigest()


def changes_digest(changes: Sequence[TextChange]) -> str:
    """Give one hash for what `changes` do to the bytes that are there now; empty for no change."""
    rows = [[change.place, change.before, change.new, change.note] for change in changes]
    return hash_of(json.dumps(rows).encode("utf-8", "surrogatepass")) if rows else ""


def call_digest(
    tool: str, arguments: Mapping[str, object], workspace: str, changes: Sequence[TextChange]
) -> str:
    """Give the hash of what a call will do as far as it is known before: what was shown is what may run."""
    row = [tool, arguments, workspace, changes_digest(changes)]
    return hash_of(json.dumps(row, sort_keys=True).encode("utf-8", "surrogatepass"))
