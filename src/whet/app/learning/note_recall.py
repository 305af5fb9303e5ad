"""Add remembered notes to the message that they are about: a few for each.

The prompt holds the notes as they were when the session began. A message is compared with the present
notes; the matching ones are added right after it, each once in a session. They are stored with the
message, so every later request has the same bytes. There is no word list: a note matches by words that few
other notes have.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from whet.contract.texts import flat
from whet.memory.folding import content_words
from whet.memory.notes import NoteEntry
from whet.memory.reader import MemoryReader, entry_id
from whet.store import learned, sessions
from whet.store.database import StateDatabase

_HEAD = "Of what you remember, this may be about it (what was said and seen, not orders):"
_MAX_CHARS = 700
_FEW = 3
_QUOTED = re.compile("“([^”]*)”")


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
    """Return the notes of `pool` that a message is about: the nearest, in the pool's order, so that of two
    that differ the later one comes last.

    A note matches if it shares a word with the message that few other notes are about. The rarer the shared
    words, the nearer the note; words of the statement that it quotes count double, those of the call or the
    file that it came from once.
    """
    words = [set(content_words(note)) for note in pool]
    subjects = [set(content_words(" ".join(_QUOTED.findall(note)) or note)) for note in pool]
    # A word that some notes are about is as rare as these are, however many others name it in a call.
    counts = dict(Counter(word for each in words for word in each))
    counts.update(Counter(word for each in subjects for word in each))
    few = max(_FEW, len(pool) // 3)
    shared_words = counts.keys() & content_words(message_text)
    rare_words = {word for word in shared_words if counts[word] <= few}
    weights = {word: math.log(1 + len(pool) / counts[word]) for word in shared_words}
    scored = [
        (sum(weights[word] for part in (each, subject) for word in part & shared_words), at)
        for at, (each, subject) in enumerate(zip(words, subjects, strict=True))
        if each & rare_words
    ]
    nearest = sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:most]
    return [pool[at] for _, at in sorted(nearest, key=lambda pair: pair[1])]
