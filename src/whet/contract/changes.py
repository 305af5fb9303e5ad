"""The changes that a call makes to files: text before and after, and the hash that ties an approval to
exactly the change that was shown."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import msgspec

REPLACES = "replaces "
"""The first word of a change's note if the change replaces a file that is not text."""


class TextChange(msgspec.Struct, frozen=True):
    """The change to one file. `old` and `new` are its text, or None if there is no file or it is not text.

    `path` is the path as a person reads it. `before` is the hash of the file's current bytes, empty if there
    is no file. `note` adds a fact that the texts don't show, for example that binary content is replaced.
    `through` is the path that the call named, if that is a link to the file.
    """

    path: str
    absolute_path: str
    old: str | None
    new: str | None
    before: str = ""
    note: str = ""
    through: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether the file holds the same text before and after."""
        return self.old is not None and self.old == self.new and not self.note


class FileEdit(msgspec.Struct, frozen=True):
    """An edit as it is shown to a person: how many lines it added and removed, and its diff, perhaps cut."""

    path: str
    added: int
    removed: int
    diff: str = ""


def split_lines(text: str | None) -> list[str]:
    """Split a text into lines with their line feeds. A carriage return stays part of its line."""
    if not text:
        return []
    parts = text.split("\n")
    lines = [f"{part}\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def hash_bytes(data: bytes) -> str:
    """Return the SHA-256 hash of a file's bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def hash_changes(changes: Sequence[TextChange]) -> str:
    """Return one hash of all changes and of the bytes they replace, or an empty string if there are none."""
    rows = [[change.absolute_path, change.before, change.new, change.note] for change in changes]
    return hash_bytes(json.dumps(rows).encode("utf-8", "surrogatepass")) if rows else ""


def hash_call(
    tool: str, arguments: Mapping[str, object], workspace: str, changes: Sequence[TextChange]
) -> str:
    """Return the hash of a call's tool, arguments, workspace and file changes. An approval is valid only for
    a call with the same hash."""
    row = [tool, arguments, workspace, hash_changes(changes)]
    return hash_bytes(json.dumps(row, sort_keys=True).encode("utf-8", "surrogatepass"))
