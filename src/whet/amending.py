"""Let a person edit a call before it runs: choose the editable text, and build the call from the edited text.

The new call is checked, judged and asked about like any other call.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from whet.contract.changes import TextChange, split_lines
from whet.contract.errors import ConfigError
from whet.contract.protocols import ApprovalRequest
from whet.contract.texts import NOT_JSON, from_json


class Editable(msgspec.Struct, frozen=True):
    """The text of a call that a person edits, the suffix for a file with that text, and a noun for the
    text."""

    text: str
    suffix: str
    noun: str


def find_editable(request: ApprovalRequest) -> Editable:
    """Return the text to edit: the call's command, the new text of its file, its diff, or all its arguments
    as JSON."""
    if isinstance(command := request.arguments.get("command"), str):
        return Editable(command, ".sh", "command")
    change = _single_change(request)
    if change is not None and change.new is not None:
        return Editable(change.new, Path(change.absolute_path).suffix, "new text")
    if isinstance(diff := request.arguments.get("diff"), str) and diff:
        return Editable(diff, ".diff", "diff")
    text = msgspec.json.format(msgspec.json.encode(request.arguments), indent=2).decode()
    return Editable(text, ".json", "call's arguments")


def apply_edit(request: ApprovalRequest, text: str) -> dict[str, object] | None:
    """Return the call's arguments with the edited `text`, or None if nothing changed. Raises ConfigError if
    the arguments were edited and are no longer a JSON object."""
    if isinstance(command := request.arguments.get("command"), str):
        text = text.removesuffix("\n")
        return None if text == command else {**request.arguments, "command": text}
    if text == find_editable(request).text:
        return None
    change = _single_change(request)
    if change is not None and change.new is not None:
        return _write_arguments(request.arguments, change, text)
    if isinstance(diff := request.arguments.get("diff"), str) and diff:
        return {**request.arguments, "diff": text}
    try:
        edited_arguments = from_json(text, dict[str, object])
    except NOT_JSON as error:
        raise ConfigError(f"what you saved is not a JSON object: {error}") from error
    return None if edited_arguments == request.arguments else edited_arguments


def _single_change(request: ApprovalRequest) -> TextChange | None:
    return request.changes[0] if len(request.changes) == 1 else None


def _write_arguments(arguments: Mapping[str, object], change: TextChange, text: str) -> dict[str, object]:
    """Return arguments with which the call writes `text` into the file of `change`."""
    if "content" in arguments:
        return {**arguments, "content": text}
    old = "/dev/null" if change.old is None else f"a/{change.path}"
    rows = difflib.unified_diff(split_lines(change.old), split_lines(text), old, f"b/{change.path}")
    diff = "".join(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows)
    return {"path": change.path, "diff": diff}
