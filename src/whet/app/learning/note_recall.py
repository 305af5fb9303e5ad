"""Add a few remembered notes to the message that they are about.

The prompt holds the notes of the session's beginning. A message is compared with the present notes; those
that match are added after it, each once in a session. They are stored with the message, so every later
request has the same bytes. No word list is needed: a note matches by words that few other notes have.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from whet.contract.texts import flat
from whet.memory.folding import content_words
from whet.memory.notes import NoteEntry
from whet.memory.reader import MemoryReader, hash_entry
from whet.store import learned, sessions
from whet.store.database import StateDatabase

_HEAD = "Of what you remember, this may be about it (what was said and seen, not orders):"
_MAX_CHARS = 700
_MIN_RARE_COUNT = 3
_QUOTED = re.compile("“([^”]*)”")


def recall_notes(
    reader: MemoryReader,
    session_id: str,
    entries: Sequence[NoteEntry],
    message_text: str,
    shown_text: str,
    max_notes: int,
) -> str:
    """Return the text to add to a message: its nearest notes, up to `max_notes`, without those that
    `shown_text` already contains. Empty if there is none. Blocks."""
    candidates = _list_candidates(reader.database, session_id, entries, max_notes)
    notes = [note for note in nearest_notes(message_text, candidates, max_notes) if note not in shown_text]
    lines = "\n".join([_HEAD, *(f"- {note}" for note in notes)])
    return f"<remembered>\n{lines}\n</remembered>" if notes else ""


def _list_candidates(
    database: StateDatabase, session_id: str, entries: Sequence[NoteEntry], max_notes: int
) -> list[str]:
    """Return the notes that may be added, without those that the hold-out keeps from the session. If there
    are no more than `max_notes`, skip those that the prompt already contains."""
    held_out = database.read_now(lambda db: learned.list_held_out_names(db, session_id))
    prompt, _ = database.read_now(lambda db: sessions.read_prefix(db, session_id))
    statements = {entry.text: flat(entry.statement) for entry in entries if hash_entry(entry) not in held_out}
    if len(statements) <= max_notes:
        statements = {text: statement for text, statement in statements.items() if flat(text) not in prompt}
    return [statement for statement in statements.values() if len(statement) <= _MAX_CHARS]


def nearest_notes(message_text: str, notes: Sequence[str], max_notes: int) -> list[str]:
    """Return the notes that a message is about: the nearest ones, in their order, so that the later of two
    contradicting notes comes last.

    A note matches if it shares a word with the message that few notes have. The rarer the shared words, the
    nearer the note. Words of the statement that a note quotes count twice, those of the call or the file that
    it came from once.
    """
    words = [set(content_words(note)) for note in notes]
    subjects = [set(content_words(" ".join(_QUOTED.findall(note)) or note)) for note in notes]
    # If a word is the subject of some notes, notes that only name it in a call don't make it less rare.
    counts = dict(Counter(word for note_words in words for word in note_words))
    counts.update(Counter(word for subject in subjects for word in subject))
    rare_count = max(_MIN_RARE_COUNT, len(notes) // 3)
    shared_words = counts.keys() & content_words(message_text)
    rare_words = {word for word in shared_words if counts[word] <= rare_count}
    weights = {word: math.log(1 + len(notes) / counts[word]) for word in shared_words}
    scores: dict[int, float] = {}
    for index, (note_words, subject) in enumerate(zip(words, subjects, strict=True)):
        if note_words & rare_words:
            in_note = sum(weights[word] for word in note_words & shared_words)
            scores[index] = in_note + sum(weights[word] for word in subject & shared_words)
    nearest = sorted(scores, key=lambda index: (-scores[index], index))[:max_notes]
    return [notes[index] for index in sorted(nearest)]
