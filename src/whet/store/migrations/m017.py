"""The schema's step for context engines: how far each has taken a session in."""

from __future__ import annotations

M017_POSITIONS = """
CREATE TABLE engine_positions (
  session INTEGER NOT NULL,
  engine TEXT NOT NULL,
  name TEXT NOT NULL,                      -- what the engine calls it
  seq INTEGER NOT NULL,                    -- the number of the last message that it has taken in
  PRIMARY KEY (session, engine, name)
) WITHOUT ROWID;
"""
