"""Takes the words of what was forgotten out of the ledger, for good: no undo brings them back.

It comes after `forget`, when files no longer hold them. What another session or the person has kept in their
own right stays, word for word. The conversation itself, and prompts of sessions that began with what was
learned, are not the ledger's; the answer names them. Runs inside the caller's transaction.
"""

from __future__ import annotations

import apsw
import msgspec

from whet.memory import notes
from whet.store import learned, ledger, purge
from whet.store.ledger import LedgerRow
from whet.store.outcomes import LABEL_CHARS


class Purged(msgspec.Struct, frozen=True):
    """What was taken out: the rows whose words are gone, kept versions of files that were deleted, and the
    sessions whose frozen prompts still hold the words."""

    rows: tuple[int, ...] = ()
    texts: int = 0
    prompts: tuple[str, ...] = ()


def carry_out(connection: apsw.Connection, profile: str, session_id: str) -> Purged:
    """Purge what a session had left in the ledger and is in force no more. Once is as good as twice."""
    everything = ledger.select(connection, profile=profile)
    standing = _standing(connection, profile, everything)
    own = [
        row
        for row in ledger.select(connection, profile=profile, session_id=session_id)
        if row.after not in standing and (row.after != purge.PURGED or row.evidence or row.reason)
    ]
    words = {row.after for row in own if not row.undoes} - {"", purge.PURGED}
    for row in own:
        purge.blank_row(connection, row.id, proof=True)
    touched = {row.id for row in own}
    for row in everything:
        before, after = row.before in words, row.after in words
        if before or after:
            purge.blank_row(connection, row.id, before=before, after=after)
            touched.add(row.id)
    keys = [*_files(own, everything), *purge.texts_with(connection, words)]
    count = purge.drop_texts(connection, keys)
    purge.drop_labels(connection, [" ".join(text.split())[:LABEL_CHARS] for text in words])
    return Purged(tuple(sorted(touched)), count, tuple(purge.prompts_with(connection, words)))


def _standing(connection: apsw.Connection, profile: str, everything: list[LedgerRow]) -> set[str]:
    """Give the texts that are in force, on whatever grounds."""
    found = {row.after for row in everything if row.kind == "skill" and row.state == "active"} - {""}
    for path in notes.FILES.values():
        wanted = learned.state(connection, profile, path).wanted
        text = learned.text(connection, wanted).decode("utf-8", "replace")
        found |= {entry.said for entry in notes.entries(text)}
    return found


def _files(own: list[LedgerRow], everything: list[LedgerRow]) -> list[str]:
    """Give the hashes of the files that these rows wrote, and of those that were built on them."""
    keys = {change.after for row in own if not row.undoes for change in row.changes} - {""}
    for row in sorted(everything, key=lambda row: row.id):
        if row.state != "active" and not row.undoes:
            keys |= {change.after for change in row.changes if change.before in keys} - {""}
    return sorted(keys)
