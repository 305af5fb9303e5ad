"""Which learned items a session began with, and what people said of its turns.

Other signals (a correction, an undo, failed calls) are read from the transcript's own tables when asked.
"""

from __future__ import annotations

import apsw

_SCHEMA = """
CREATE TABLE context_items (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,                      -- memory | user | skill | example
  name TEXT NOT NULL,
  hash TEXT NOT NULL,
  label TEXT NOT NULL,                     -- its beginning, for lists
  UNIQUE (kind, name, hash)
);

CREATE TABLE session_items (
  session INTEGER NOT NULL,
  item INTEGER NOT NULL REFERENCES context_items (id),
  held_out INTEGER NOT NULL,               -- left out by chance: the session began without it
  randomised INTEGER NOT NULL,             -- whether chance decided at all
  PRIMARY KEY (session, item)
) WITHOUT ROWID;
CREATE INDEX session_items_by_item ON session_items (item);

CREATE TABLE turn_signals (
  session INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  signal TEXT NOT NULL,                    -- good | bad | retry
  at TEXT NOT NULL,
  PRIMARY KEY (session, turn, signal)
) WITHOUT ROWID;
"""


def m006_outcomes(connection: apsw.Connection) -> None:
    """Create the tables of outcomes."""
    connection.execute(_SCHEMA)
