"""The schema's step for helpers: what each is to do, how far it is, whether its parent has its result."""

from __future__ import annotations

M023_HELPERS = """
CREATE TABLE helpers (
  id TEXT PRIMARY KEY,
  parent TEXT NOT NULL,                    -- id of the session that it works for
  number INTEGER NOT NULL,                 -- helper-1, helper-2: its name in that session
  call TEXT NOT NULL,                      -- turn, step and place of the call that asked for it
  wish TEXT NOT NULL,                      -- JSON: its task, and how it is to work
  budget_usd REAL NOT NULL DEFAULT 0,      -- the most that it may cost; 0: no cap of its own
  session TEXT NOT NULL,                   -- id of its own session
  owner TEXT NOT NULL DEFAULT '',          -- the process that it runs in
  state TEXT NOT NULL,                     -- open | ended
  reason TEXT NOT NULL DEFAULT '',         -- answered | budget | failed | refused | crashed | stopped
  answer TEXT NOT NULL DEFAULT '',
  error TEXT NOT NULL DEFAULT '',
  tree TEXT NOT NULL DEFAULT '',           -- JSON: its working tree; empty: it works in its parent's
  merge TEXT NOT NULL DEFAULT '',          -- JSON: what becomes of its edits; empty: nothing yet
  delivered TEXT NOT NULL DEFAULT '',      -- when its parent got its result; where a call waits: at once
  begun TEXT NOT NULL,
  ended TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE UNIQUE INDEX helpers_by_call ON helpers (parent, call);
CREATE INDEX helpers_by_session ON helpers (session);
INSERT INTO helpers (id, parent, number, call, wish, session, state, reason, delivered, begun, ended)
  SELECT id, parent_session_id, row_number() OVER (PARTITION BY parent_session_id ORDER BY key), id,
    '{"task":"(begun by an older version)"}', id, 'ended', 'ended', started, started, last_active
  FROM sessions WHERE kind = 'child';
"""
