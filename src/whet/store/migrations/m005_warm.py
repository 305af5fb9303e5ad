"""Warm sessions: what a session was started with, the outcome of each call, and what came of templates.

`prime_text` is part of a session's frozen prefix, next to its system prompt and tool array: the examples
are never rows of `messages`, so nothing that reads what was said can take them for it.
"""

from __future__ import annotations

import apsw

_SCHEMA = """
ALTER TABLE sessions ADD COLUMN prime_text INTEGER REFERENCES frozen_texts (id);  -- NULL: started cold
ALTER TABLE sessions ADD COLUMN judged_turn INTEGER NOT NULL DEFAULT 0;  -- calls up to it have an outcome
ALTER TABLE tool_calls ADD COLUMN outcome TEXT NOT NULL DEFAULT '';
ALTER TABLE tool_calls ADD COLUMN outcome_reason TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_to_judge ON sessions (key) WHERE judged_turn < turns;

CREATE TABLE warm_starts (
  session INTEGER PRIMARY KEY,
  template TEXT NOT NULL,
  hash TEXT NOT NULL,                      -- of the template's examples and addendum
  arm TEXT NOT NULL,                       -- warm, held_out
  chosen_by TEXT NOT NULL,                 -- name, auto, default, next
  examples INTEGER NOT NULL,
  at TEXT NOT NULL
);
CREATE INDEX warm_starts_by_template ON warm_starts (hash, session);

CREATE TABLE warm_states (
  hash TEXT PRIMARY KEY,
  template TEXT NOT NULL,
  off_reason TEXT NOT NULL DEFAULT '',     -- not empty: switched off
  last_win TEXT NOT NULL DEFAULT '',
  at TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE warm_next (workspace TEXT PRIMARY KEY, template TEXT NOT NULL, at TEXT NOT NULL) WITHOUT ROWID;
"""


def m005_warm(connection: apsw.Connection) -> None:
    """Add columns and tables."""
    connection.execute(_SCHEMA)
