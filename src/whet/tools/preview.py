"""Compute the changes of an edit before a person is asked, and check them against the person's approval.

Built-in edits are planned by the code that makes them. For other tools with the edit tag, the changes are
derived from the arguments: `content` for `path`, `old_string` and `new_string`, or `diff`. Nothing here
writes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from whet.contract.changes import REPLACES, TextChange, hash_bytes, hash_changes
from whet.contract.errors import ToolDenied, ToolError
from whet.contract.tools import ToolContext
from whet.tools.encoding import decode
from whet.tools.output import size
from whet.tools.paths import ConfinedPath, FileAccess, kind, open_file, resolve

_MAX_BYTES = 50_000_000


def change_of(target: ConfinedPath, before: bytes | None, after: str | None) -> TextChange:
    """Return the change of a file whose current content is `before` (None: it does not exist)."""
    hashed = "" if before is None else hash_bytes(before)
    decoded = ("", None) if before is None else decode(before)
    old = None if before is None or decoded is None else decoded[0]
    note = f"{REPLACES}{size(len(before or b''))} of binary data" if decoded is None else ""
    return TextChange(target.shown, str(target.path), old, after, hashed, note, target.link_name)


def read_current(target: ConfinedPath) -> bytes | None:
    """Read a file that is about to be replaced, or return None if it does not exist. Raises ToolError."""
    if kind(target) != "file":
        return None
    with os.fdopen(open_file(target), "rb") as stream:
        return stream.read(_MAX_BYTES)


def require_approved(changes: Sequence[TextChange], ctx: ToolContext) -> None:
    """Raise ToolDenied if the person approved other changes than these."""
    if ctx.shown and hash_changes(changes) != ctx.shown:
        raise ToolDenied(
            "the file changed after the person was shown what would be written, so nothing was written",
            hint="read the file and call again; the person is asked again",
        )


def propose_changes(ctx: ToolContext, arguments: Mapping[str, object]) -> tuple[TextChange, ...]:
    """Return the changes that another tool would make, as far as its arguments show. Raises ToolError."""
    path, content, diff = (arguments.get(name) for name in ("path", "content", "diff"))
    if isinstance(diff, str) and diff:
        from whet.tools.patch import Replacement, plan_changes  # noqa: PLC0415 - patch plans by way of this module

        return plan_changes(ctx, str(path or ""), Replacement("", None, every=False), diff, FileAccess())
    if not isinstance(path, str) or not path:
        return ()
    try:
        target = resolve(path, ctx.workspace, ())
    except ToolError:
        new = content if isinstance(content, str) else None
        full_path = str(Path(ctx.workspace, path))
        return (TextChange(path, full_path, None, new, note="outside the workspace"),)
    before = read_current(target)
    if isinstance(content, str):
        return (change_of(target, before, content),)
    old, new = arguments.get("old_string"), arguments.get("new_string")
    deletion = change_of(target, before, None)
    text = deletion.old
    if isinstance(old, str) and isinstance(new, str) and old and text is not None and old in text:
        times = -1 if arguments.get("replace_all") is True else 1
        return (change_of(target, before, text.replace(old, new, times)),)
    return (msgspec.structs.replace(deletion, new=text, note="what it writes is not said"),)
