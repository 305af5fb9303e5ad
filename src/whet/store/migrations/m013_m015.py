"""The schema's steps for rewinds, a search index that ranks, what a review points at."""

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
