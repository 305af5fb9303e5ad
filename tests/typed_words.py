"""Which texts of a home's sessions count as typed by the person."""

from __future__ import annotations

from pathlib import Path

import apsw

from whet.memory.transcript import load_transcript


def read_typed_words(home: Path) -> str:
    """Return all texts of a home's sessions that count as the person's own words."""
    connection = apsw.Connection(str(home / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        ids = [id_ for (id_,) in connection.execute("SELECT id FROM sessions").fetchall()]
        sources = [source for id_ in ids for source in load_transcript(connection, id_).sources]
    finally:
        connection.close()
    return "\n".join(source.text for source in sources if source.tier == source.role == "user")
