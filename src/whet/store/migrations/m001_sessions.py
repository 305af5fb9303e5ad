"""Sessions, turns, messages, tool calls, compactions, search index, jobs and grants.

A message's id is its session's key shifted by 22 bits plus its number in the session: one tree serves
reading in order, appending and search, and an append touches one page.
"""

from __future__ import annotations

import apsw

_SCHEMA = """
CREATE TABLE frozen_texts (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, text TEXT NOT NULL);

CREATE TABLE sessions (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  conversation_id TEXT NOT NULL,
  parent_session_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  source TEXT NOT NULL,
  provider TEXT NOT NULL,
  model TEXT NOT NULL,
  title TEXT NOT NULL,
  workspace TEXT NOT NULL,
  private INTEGER NOT NULL,
  started TEXT NOT NULL,
  last_active TEXT NOT NULL,
  ended TEXT NOT NULL DEFAULT '',
  end_reason TEXT NOT NULL DEFAULT '',
  system_text INTEGER NOT NULL REFERENCES frozen_texts (id),
  tools_text INTEGER NOT NULL REFERENCES frozen_texts (id),
  epoch INTEGER NOT NULL DEFAULT 0,        -- changes when the live list is rewritten
  indexed_seq INTEGER NOT NULL DEFAULT 0,  -- messages below it are in messages_fts
  dirty INTEGER NOT NULL DEFAULT 0,        -- whether there may be messages to index
  turns INTEGER NOT NULL DEFAULT 0,
  messages INTEGER NOT NULL DEFAULT 0,
  tool_calls INTEGER NOT NULL DEFAULT 0,
  prompt_tokens INTEGER NOT NULL DEFAULT 0,
  completion_tokens INTEGER NOT NULL DEFAULT 0,
  total_tokens INTEGER NOT NULL DEFAULT 0,
  input_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0,
  cache_read_tokens INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0,
  reasoning_tokens INTEGER NOT NULL DEFAULT 0,
  cost_usd REAL DEFAULT 0.0                -- NULL once a part's price is unknown
);
CREATE INDEX sessions_by_activity ON sessions (last_active DESC, key DESC);
CREATE INDEX sessions_by_parent ON sessions (parent_session_id) WHERE parent_session_id <> '';
CREATE INDEX sessions_to_index ON sessions (key) WHERE dirty;

CREATE TABLE turns (
  session INTEGER NOT NULL,
  number INTEGER NOT NULL,
  id TEXT NOT NULL,
  started TEXT NOT NULL,
  ended TEXT NOT NULL DEFAULT '',
  reason TEXT NOT NULL DEFAULT '',
  error TEXT NOT NULL DEFAULT '',
  steps INTEGER NOT NULL DEFAULT 0,
  usage TEXT NOT NULL DEFAULT '',
  undone TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (session, number)
) WITHOUT ROWID;

CREATE TABLE claims (
  session INTEGER PRIMARY KEY,
  token TEXT NOT NULL,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  born TEXT NOT NULL,
  renewed TEXT NOT NULL
);

CREATE TABLE messages (
  id INTEGER PRIMARY KEY,                  -- session key << 22 | number in the session
  turn INTEGER NOT NULL,
  role INTEGER NOT NULL,                   -- 0 user, 1 assistant, 2 tool
  at INTEGER NOT NULL,                     -- milliseconds since the epoch
  content TEXT NOT NULL,
  extra TEXT                               -- JSON of what else the message has
);

CREATE TABLE tool_calls (
  session INTEGER NOT NULL,
  seq INTEGER NOT NULL,                    -- of the result; the call stands in message seq - 1 - position
  position INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  step INTEGER NOT NULL,
  call_id TEXT NOT NULL,
  name TEXT NOT NULL,
  started INTEGER,                         -- milliseconds since the epoch
  finished INTEGER,
  duration_s REAL,
  decided_by TEXT NOT NULL DEFAULT '',
  error_kind TEXT NOT NULL DEFAULT '',
  exit_code INTEGER,
  PRIMARY KEY (session, seq)
) WITHOUT ROWID;

CREATE TABLE compactions (
  id INTEGER PRIMARY KEY,
  session INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  after_seq INTEGER NOT NULL,
  live TEXT NOT NULL,                      -- JSON list: a number refers to a stored message, a text is one
  engine TEXT NOT NULL,
  tokens_before INTEGER NOT NULL,
  tokens_after INTEGER NOT NULL,
  at TEXT NOT NULL,
  undone TEXT NOT NULL DEFAULT ''
);
CREATE INDEX compactions_by_session ON compactions (session, id);

CREATE TABLE jobs (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  payload TEXT NOT NULL,
  state TEXT NOT NULL,
  created TEXT NOT NULL,
  run_after TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  owner TEXT NOT NULL DEFAULT '',
  lease_until TEXT NOT NULL DEFAULT '',
  finished TEXT NOT NULL DEFAULT '',
  error TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX jobs_open ON jobs (kind, run_after, id) WHERE state <> 'done' AND state <> 'failed';

CREATE TABLE grants (
  id INTEGER PRIMARY KEY,
  tool TEXT NOT NULL,
  pattern TEXT NOT NULL,
  workspace TEXT NOT NULL,
  created TEXT NOT NULL,
  UNIQUE (tool, pattern, workspace)
);

CREATE VIRTUAL TABLE messages_fts USING fts5 (
  body, content='', contentless_delete=1,
  tokenize="unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
);
"""


def m001_sessions(connection: apsw.Connection) -> None:
    """Create everything."""
    connection.execute(_SCHEMA)
