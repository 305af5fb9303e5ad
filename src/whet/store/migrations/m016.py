"""The schema's step for receipts, the wallet and goals."""

from __future__ import annotations

# A reservation that was never settled counts in full: the call may have been made before the program ended.
M016_GOALS = """
ALTER TABLE tool_calls ADD COLUMN facts TEXT NOT NULL DEFAULT '';  -- JSON; empty: no effect to name

CREATE TABLE wallet_calls (
  id INTEGER PRIMARY KEY,
  at TEXT NOT NULL,
  session TEXT NOT NULL,
  what TEXT NOT NULL,                      -- turn | summary | review
  model TEXT NOT NULL,
  scopes TEXT NOT NULL,                    -- JSON: the rows of wallet_sums that it counts in
  usd REAL,                                -- NULL: the price is not known
  tokens INTEGER NOT NULL,
  settled INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX wallet_calls_by_time ON wallet_calls (at);

CREATE TABLE wallet_sums (
  scope TEXT NOT NULL,                     -- day | session | person | schedule | goal
  name TEXT NOT NULL,
  usd REAL NOT NULL DEFAULT 0,
  tokens INTEGER NOT NULL DEFAULT 0,
  told INTEGER NOT NULL DEFAULT 0,         -- whether somebody was told that its cap is near
  PRIMARY KEY (scope, name)
) WITHOUT ROWID;

CREATE TABLE goals (
  id TEXT PRIMARY KEY,
  session TEXT NOT NULL,
  text TEXT NOT NULL,
  verify TEXT NOT NULL,                    -- a command; empty: the model ends it with claims
  guarded TEXT NOT NULL,                   -- JSON: hashes of the verifier's files by path
  budget_usd REAL NOT NULL,                -- 0: none
  max_steps INTEGER NOT NULL,              -- model calls, 0: no limit
  state TEXT NOT NULL,                     -- running | paused | achieved | budget | stuck | cancelled
  asked INTEGER NOT NULL DEFAULT 0,        -- rounds whose message is stored
  round INTEGER NOT NULL DEFAULT 0,        -- rounds that ended
  first_turn INTEGER NOT NULL,
  said TEXT NOT NULL DEFAULT '',           -- what the verifier or the check of claims said last
  stalled INTEGER NOT NULL DEFAULT 0,      -- rounds in a row that brought nothing new
  mark TEXT NOT NULL DEFAULT '',           -- hash of what the last round came to
  note TEXT NOT NULL DEFAULT '',
  begun TEXT NOT NULL,
  ended TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE UNIQUE INDEX goals_open ON goals (session) WHERE state IN ('running', 'paused');
"""
