"""Schedules, and each run of one. When one is due stands in its waiting row of `jobs`."""

from __future__ import annotations

import apsw

_SCHEMA = """
CREATE TABLE schedules (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE COLLATE NOCASE,
  created TEXT NOT NULL,
  expression TEXT NOT NULL,                -- a cron expression; empty for a single time
  at TEXT NOT NULL,                        -- the single time; empty otherwise
  time_zone TEXT NOT NULL,                 -- in which the expression is read
  prompt TEXT NOT NULL,
  session_id TEXT NOT NULL,                -- where it is said; empty: a new session each time
  workspace TEXT NOT NULL,
  target TEXT NOT NULL,                    -- a file, "notify", or empty
  toolsets TEXT NOT NULL,                  -- comma-separated; empty: as configured
  timeout_s REAL NOT NULL,
  paused INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE schedule_runs (
  job TEXT PRIMARY KEY,
  schedule TEXT NOT NULL,
  due TEXT NOT NULL,
  by_hand INTEGER NOT NULL,
  started TEXT NOT NULL,
  finished TEXT NOT NULL DEFAULT '',
  begun INTEGER NOT NULL DEFAULT 0,        -- how often its turn was begun or gone on with
  session_id TEXT NOT NULL DEFAULT '',
  turns_before INTEGER NOT NULL DEFAULT 0, -- of the session, when this run came to it
  result TEXT NOT NULL DEFAULT '',         -- empty while it runs
  note TEXT NOT NULL DEFAULT '',
  text TEXT NOT NULL DEFAULT ''            -- the answer's beginning
) WITHOUT ROWID;
CREATE INDEX schedule_runs_by_schedule ON schedule_runs (schedule, started);
"""


def m008_schedules(connection: apsw.Connection) -> None:
    """Create the tables of schedules."""
    connection.execute(_SCHEMA)
