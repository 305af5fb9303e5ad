"""Schema steps 13 to 28: rewinds, search, goals, engines, schedules, helpers, plans, titles.

A released step is never changed.
"""

from __future__ import annotations

M013_REWINDS = """
ALTER TABLE turns ADD COLUMN cut INTEGER NOT NULL DEFAULT 0;  -- messages from this number on are taken back
CREATE TABLE rewinds (
  id TEXT PRIMARY KEY,
  session INTEGER NOT NULL,
  at TEXT NOT NULL,
  turn INTEGER NOT NULL,                   -- the point: before this turn, or this step of it
  step INTEGER NOT NULL,                   -- 0: the whole turn
  state TEXT NOT NULL,                     -- begun | done
  undoes TEXT NOT NULL DEFAULT '',         -- the rewind that this one takes back
  parts TEXT NOT NULL,                     -- files | conversation | both
  told INTEGER NOT NULL,                   -- whether the model knows: files can change behind its back
  before TEXT NOT NULL DEFAULT ''          -- what the conversation was, JSON; empty: it was left as it is
) WITHOUT ROWID;
CREATE INDEX rewinds_by_session ON rewinds (session, at);
"""

M014_SEARCH = """
DROP TABLE messages_fts;
CREATE VIRTUAL TABLE messages_fts USING fts5 (
  body, content='', contentless_delete=1,
  tokenize="porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
);
CREATE VIRTUAL TABLE messages_words USING fts5vocab (messages_fts, instance);
CREATE INDEX sessions_new_to_index ON sessions (key) WHERE dirty = 1;
UPDATE sessions SET indexed_seq = 0, dirty = 2  -- 1: new messages, 2: to be indexed anew
 WHERE EXISTS (SELECT 1 FROM messages WHERE id >= key << 22 AND id < (key + 1) << 22);
"""

M015_POINTED = """
ALTER TABLE ledger ADD COLUMN remark TEXT NOT NULL DEFAULT '';

CREATE TABLE learned_told (                -- the last change of which a person was told when they came back
  profile TEXT PRIMARY KEY,
  ledger INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO learned_told (profile, ledger) SELECT profile, max(id) FROM ledger GROUP BY profile;
"""

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

# How far each context engine has read a session.
M017_POSITIONS = """
CREATE TABLE engine_positions (
  session INTEGER NOT NULL,
  engine TEXT NOT NULL,
  name TEXT NOT NULL,                      -- what the engine calls it
  seq INTEGER NOT NULL,                    -- the number of the last message that it has taken in
  PRIMARY KEY (session, engine, name)
) WITHOUT ROWID;
"""

# Goals at set times, and quiet hours.
M018_GOAL_SCHEDULES = """
ALTER TABLE schedules ADD COLUMN goal TEXT NOT NULL DEFAULT '';    -- JSON; empty: a turn, not a goal
ALTER TABLE schedules ADD COLUMN quiet TEXT NOT NULL DEFAULT '';   -- 22:00-07:00 in its zone
ALTER TABLE schedule_runs ADD COLUMN held TEXT NOT NULL DEFAULT '';  -- the chat that waits for its answer
"""

# Sessions that were forked from another, and archived sessions.
M019_FORKS = """
CREATE TABLE forks (
  session INTEGER PRIMARY KEY,             -- key of the session that was made
  origin TEXT NOT NULL,                    -- id of the session that it goes on from, which may be gone
  turn INTEGER NOT NULL                    -- the last turn that both have
);
ALTER TABLE sessions ADD COLUMN archived TEXT NOT NULL DEFAULT '';  -- when it was put aside; empty: it is not
"""

# The task of each helper, its progress, and whether its parent has its result.
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

# Sessions that plan: they only read until their plan is approved.
M024_PLANNING = """
ALTER TABLE sessions ADD COLUMN planning INTEGER NOT NULL DEFAULT 0;
"""

# An index finds a part of a title, however many sessions there are.
M026_TITLES = """
CREATE VIRTUAL TABLE session_titles USING fts5 (
  title, content='sessions', content_rowid='key', tokenize='trigram', detail='none'
);
INSERT INTO session_titles (session_titles, rank) VALUES ('secure-delete', 1);
INSERT INTO session_titles (session_titles) VALUES ('rebuild');
CREATE TRIGGER session_titles_put AFTER INSERT ON sessions BEGIN
  INSERT INTO session_titles (rowid, title) VALUES (new.key, new.title);
END;
CREATE TRIGGER session_titles_changed AFTER UPDATE OF title ON sessions WHEN old.title <> new.title BEGIN
  INSERT INTO session_titles (session_titles, rowid, title) VALUES ('delete', old.key, old.title);
  INSERT INTO session_titles (rowid, title) VALUES (new.key, new.title);
END;
CREATE TRIGGER session_titles_gone AFTER DELETE ON sessions BEGIN
  INSERT INTO session_titles (session_titles, rowid, title) VALUES ('delete', old.key, old.title);
END;
"""

# Two blanks after each title let every run of one or two characters begin a run of three, and the index's own
# vocabulary lists the sessions that have it.
M027_SHORT_PARTS = """
DROP TRIGGER session_titles_put;
DROP TRIGGER session_titles_changed;
DROP TRIGGER session_titles_gone;
DROP TABLE session_titles;
CREATE VIEW session_titles_padded AS SELECT key, title || '  ' AS title FROM sessions;
CREATE VIRTUAL TABLE session_titles USING fts5 (
  title, content='session_titles_padded', content_rowid='key', tokenize='trigram', detail='none'
);
CREATE VIRTUAL TABLE session_titles_runs USING fts5vocab (session_titles, instance);
INSERT INTO session_titles (session_titles, rank) VALUES ('secure-delete', 1);
INSERT INTO session_titles (session_titles) VALUES ('rebuild');
CREATE TRIGGER session_titles_put AFTER INSERT ON sessions BEGIN
  INSERT INTO session_titles (rowid, title) VALUES (new.key, new.title || '  ');
END;
CREATE TRIGGER session_titles_changed AFTER UPDATE OF title ON sessions WHEN old.title <> new.title BEGIN
  INSERT INTO session_titles (session_titles, rowid, title) VALUES ('delete', old.key, old.title || '  ');
  INSERT INTO session_titles (rowid, title) VALUES (new.key, new.title || '  ');
END;
CREATE TRIGGER session_titles_gone AFTER DELETE ON sessions BEGIN
  INSERT INTO session_titles (session_titles, rowid, title) VALUES ('delete', old.key, old.title || '  ');
END;
"""

# The newest message has the smallest number in the search index: FTS5 skips only forwards in its lists; to go
# back it reads their directory from its beginning for each page.
M028_NEWEST_FIRST = """
DROP TABLE messages_words;
DROP TABLE messages_fts;
CREATE VIRTUAL TABLE messages_fts USING fts5 (
  body, content='', contentless_delete=1,
  tokenize="porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
);
CREATE VIRTUAL TABLE messages_words USING fts5vocab (messages_fts, instance);
UPDATE sessions SET indexed_seq = 0, dirty = 2
 WHERE EXISTS (SELECT 1 FROM messages WHERE id >= key << 22 AND id < (key + 1) << 22);
"""
