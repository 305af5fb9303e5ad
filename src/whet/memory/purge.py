"""Takes the words of what was forgotten out of the ledger, for good: no undo brings them back.

It comes after `forget`, when files no longer hold them. What another session or the person has kept in their
own right stays, word for word. The conversation itself, and prompts of sessions that began with what was
learned, are not the ledger's; the answer names them. Runs inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import apsw
import msgspec

from whet.memory import frontmatter, notes
from whet.memory.frontmatter import BadSkill
from whet.store import learned, ledger, purge
from whet.store.ledger import LedgerRow, digest
from whet.store.starts import LABEL_CHARS


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
        if session_id
        and row.after not in standing
        and (row.after != purge.PURGED or row.evidence or row.reason)
    ]
    words = {row.after for row in own if not row.undoes} - {"", purge.PURGED}
    said = {row.after for row in own if row.kind == "memory"} & words
    for row in own:
        purge.blank_row(connection, row.id, proof=True)
    parts = [*([text] for text in words - said), *map(_lines, said)]
    keys = _files(own, everything) | set(purge.texts_with(connection, parts))
    count = purge.drop_texts(connection, keys)
    gone = {key for key in keys if not purge.has_text(connection, key)}
    touched = {row.id for row in own}
    for row in everything:
        before, after = (
            text not in standing and _tells(row, text, words, gone) for text in (row.before, row.after)
        )
        if before or after:
            purge.blank_row(connection, row.id, before=before, after=after)
            touched.add(row.id)
    shown = {_flat(text) for text in said} | (_described(words) - _described(standing))
    purge.drop_labels(connection, [text[:LABEL_CHARS] for text in shown])
    prompts = [text.removeprefix(notes.SAID_PITFALL)[:LABEL_CHARS] for text in shown]
    return Purged(tuple(sorted(touched)), count, tuple(purge.prompts_with(connection, prompts)))


def _standing(connection: apsw.Connection, profile: str, everything: list[LedgerRow]) -> set[str]:
    """Give the texts that are in force, on whatever grounds. What an undo went back to has a row of its own,
    which says whether it still is."""
    made = [row for row in everything if row.state == "active" and not row.undoes]
    found = {row.after for row in made if row.kind == "skill"} - {""}
    for path in notes.FILES.values():
        wanted = learned.state(connection, profile, path).wanted
        text = notes.decoded(learned.text(connection, wanted))
        found |= {entry.said for entry in notes.entries(text)}
    return found


def _files(own: list[LedgerRow], everything: list[LedgerRow]) -> set[str]:
    """Give the hashes of the files that these rows wrote, and of those that were built on them."""
    keys = {change.after for row in own if not row.undoes for change in row.changes} - {""}
    for row in sorted(everything, key=lambda row: row.id):
        if row.state != "active" and not row.undoes:
            keys |= {change.after for change in row.changes if change.before in keys} - {""}
    return keys


def _tells(row: LedgerRow, text: str, words: set[str], gone: set[str]) -> bool:
    """Whether a row's text goes: it is one of these words, a file that went, or notes with such an entry."""
    if text in words:
        return True
    if row.kind == "skill":
        return digest(text) in gone
    return any(entry.said in words for entry in notes.entries(text))


def _lines(said: str) -> list[str]:
    """Give an entry as it stands in a file: line by line, and without the word that says it is a pitfall."""
    return said.removeprefix(notes.SAID_PITFALL).split("\n")


def _described(texts: Collection[str]) -> set[str]:
    """Give what skills say of themselves, as sessions begin with it."""
    found: set[str] = set()
    for text in texts:
        with suppress(BadSkill):
            found.add(frontmatter.name_and_description(text)[1])
    return found


def _flat(text: str) -> str:
    return " ".join(text.split())
