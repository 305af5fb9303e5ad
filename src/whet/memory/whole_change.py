"""Describe a waiting change in full before it is accepted: the note, or each file that a skill would write.

A digest ties the acceptance to the text that was shown. Callers read the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from whet.memory.skill_changes import MAIN
from whet.store.ledger import LedgerRow, hash_text
from whet.visible import WHOLE, visible


def describe_whole(row: LedgerRow, files: Mapping[str, bytes]) -> str:
    """Return all that accepting the row writes or removes; `files` are the new contents by path.

    Hidden characters are written as codes. Secrets are not masked: the person must see the text that is
    stored.
    """
    if not row.changes:
        parts = [("removes: ", row.before), ("", row.after)]
        return "\n".join(f"{head}{visible(text, WHOLE, masking=None)}" for head, text in parts if text)
    paths = sorted((change.path for change in row.changes), key=lambda path: (not path.endswith(MAIN), path))
    return "\n".join(f"--- {visible(path)}\n{_describe_file(files.get(path))}" for path in paths)


def digest_changes(rows: Sequence[LedgerRow]) -> str:
    """Return the value of `--digest` that accepts these changes without a question."""
    facts = [(row.id, row.item, row.action, row.before, row.after, row.changes) for row in rows]
    return hash_text(msgspec.json.encode(facts))


def _describe_file(content: bytes | None) -> str:
    if content is None:
        return "(the file is removed)"
    try:
        return visible(content.decode(), WHOLE, masking=None)
    except UnicodeDecodeError:
        return f"({len(content):,} bytes that are not text, hash {hash_text(content)})"
