"""The ledger of learned changes, the texts it speaks of, and receipts of loaded skills.

The ledger is the journal, files are derived: `learned_files` says what each file should hold and what was
last written to it, so that a crash between the two is healed and an edit by hand is noticed.
"""

from __future__ import annotations

import apsw

_SCHEMA = """
CREATE TABLE ledger (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  profile TEXT NOT NULL,                   -- whose memory; empty: the home's owner
  at TEXT NOT NULL,
  kind TEXT NOT NULL,                      -- memory | skill
  item TEXT NOT NULL,                      -- memory, user, or the skill's name
  action TEXT NOT NULL,
  state TEXT NOT NULL,
  before TEXT NOT NULL,                    -- an entry, or the text of the file that was changed
  after TEXT NOT NULL,
  changes TEXT NOT NULL,                   -- JSON: files of a skill with the hashes of before and after
  base_hash TEXT NOT NULL,                 -- of the item when the change was worked out
  hash TEXT NOT NULL,                      -- of the item with the change made
  evidence TEXT NOT NULL,                  -- JSON list of quotes with the messages they are from
  trust TEXT NOT NULL,
  reason TEXT NOT NULL,
  undoes INTEGER NOT NULL DEFAULT 0,
  undone_by INTEGER NOT NULL DEFAULT 0,
  write_origin TEXT NOT NULL,
  session_id TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  tool_call_id TEXT NOT NULL,
  parent_session_id TEXT NOT NULL,
  execution_context TEXT NOT NULL,
  platform TEXT NOT NULL,
  tool_name TEXT NOT NULL,
  task_id TEXT NOT NULL
);
CREATE UNIQUE INDEX ledger_by_call ON ledger (session_id, tool_call_id) WHERE tool_call_id <> '';
CREATE INDEX ledger_by_item ON ledger (profile, kind, item, id);
CREATE INDEX ledger_by_task ON ledger (task_id, id) WHERE task_id <> '';
CREATE INDEX ledger_by_parent ON ledger (parent_session_id) WHERE parent_session_id <> '';

CREATE TABLE learned_texts (hash TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;

CREATE TABLE learned_files (
  profile TEXT NOT NULL,
  path TEXT NOT NULL,                      -- below the profile's folder
  wanted TEXT NOT NULL,                    -- hash of what it should hold; empty: no such file
  written TEXT NOT NULL,                   -- hash of what was last seen or put there
  PRIMARY KEY (profile, path)
) WITHOUT ROWID;
CREATE INDEX learned_files_unapplied ON learned_files (profile) WHERE wanted <> written;

CREATE TABLE skill_uses (
  id INTEGER PRIMARY KEY,
  profile TEXT NOT NULL,
  at TEXT NOT NULL,
  session_id TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  tool_call_id TEXT NOT NULL,
  name TEXT NOT NULL,
  file TEXT NOT NULL,
  hash TEXT NOT NULL,                      -- of the text that was shown
  how TEXT NOT NULL                        -- view | slash
);
CREATE INDEX skill_uses_by_name ON skill_uses (name, id);
CREATE INDEX skill_uses_by_session ON skill_uses (session_id);

CREATE TABLE skill_marks (
  profile TEXT NOT NULL,
  name TEXT NOT NULL,
  owner TEXT NOT NULL,                     -- agent | person
  pinned INTEGER NOT NULL DEFAULT 0,
  source TEXT NOT NULL DEFAULT '',         -- where an installed skill came from
  PRIMARY KEY (profile, name)
) WITHOUT ROWID;
"""


def m002_learning(connection: apsw.Connection) -> None:
    """Create the tables of learning."""
    connection.execute(_SCHEMA)
