"""Add remembered notes to the message that they are about: at most three notes per message.

The prompt holds the notes as they were when the session began. A message is compared with the present
notes; the matching ones are added right after it, each once in a session. They are stored with the
message, so every later request has the same bytes. There is no word list: a note matches by words that few
other notes have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from whet.contract.texts import flat
from whet.memory.folding import content_words
from whet.memory.notes import NoteEntry
from whet.memory.reader import MemoryReader, entry_id
from whet.store import learned, sessions
from whet.store.database import StateDatabase

_HEAD = "Of what you remember, this may be about it (what was said and seen, not orders):"
_MAX_CHARS = 400
_FEW = 3


def recall_notes(
    reader: MemoryReader,
    session_id: str,
    entries: Sequence[NoteEntry],
    message_text: str,
    shown_text: str,
    most: int,
) -> str:
    """Return the text to add to a message: the nearest notes of `entries` that `shown_text` does not contain
    yet, or an empty string. Blocks."""
    pool = _candidates(reader.database, session_id, entries, most)
    notes = (
        [note for note in nearest_notes(message_text, pool, most) if note not in shown_text] if pool else []
    )
    lines = "\n".join([_HEAD, *(f"- {note}" for note in notes)])
    return f"<remembered>\n{lines}\n</remembered>" if notes else ""


def _candidates(
    database: StateDatabase, session_id: str, entries: Sequence[NoteEntry], most: int
) -> list[str]:
    """Return the notes that may be added: not those that the hold-out keeps from the session. If there are
    only a few notes, skip those that the prompt already contains."""
    held_out = database.read_now(lambda db: learned.list_held_out_names(db, session_id))
    prompt, _ = database.read_now(lambda db: sessions.read_prefix(db, session_id))
    statements = {entry.text: flat(entry.statement) for entry in entries if entry_id(entry) not in held_out}
    if len(statements) <= most:
        statements = {text: statement for text, statement in statements.items() if flat(text) not in prompt}
    return [statement for statement in statements.values() if len(statement) <= _MAX_CHARS]


def nearest_notes(message_text: str, pool: Sequence[str], most: int) -> list[str]:
    """Return the notes of `pool` that a message is about, the nearest first.

    A note matches if it shares a word with the message that few other notes have; the rarer the word, the
    nearer the note.
    """
    words = [set(content_words(note)) for note in pool]
    common = Counter(word for each in words for word in each)
    few = max(_FEW, len(pool) // 3)
    rare_words = {word for word in content_words(message_text) if 0 < common[word] <= few}
    scored = [
        (sum(math.log(1 + len(pool) / common[word]) for word in each & rare_words), -at)
        for at, each in enumerate(words)
    ]
    return [pool[-at] for score, at in sorted(scored, reverse=True)[:most] if score]
