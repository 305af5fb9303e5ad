"""Step 13: conversations that are taken back to a point, and back again."""

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
