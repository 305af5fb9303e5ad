"""Schema steps 1 to 6: sessions, learned changes, reviews, imports, warm starts, outcomes.

A released step is never changed.
"""

from __future__ import annotations

# Sessions, turns, messages, tool calls, compactions, search index, jobs and grants.
#
# A message's id is its session's key shifted by 22 bits plus its number in the session: one tree serves
# reading in order, appending and search, and an append touches one page.
M001_SESSIONS = """
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

# The ledger of learned changes, the texts it refers to, and records of loaded skills.
#
# The ledger is the journal and files are derived from it: `learned_files` has each file's expected content
# and the content last written, so that a crash between the two is repaired and an edit by hand is noticed.
M002_LEARNING = """
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

# Reviews of finished turns, the counters that trigger them, and the subject that keeps jobs from running at
# the same time.
M003_REVIEWS = """
ALTER TABLE jobs ADD COLUMN subject TEXT NOT NULL DEFAULT '';

CREATE TABLE review_counters (
  conversation TEXT PRIMARY KEY,
  turns INTEGER NOT NULL,                  -- of the person, since memory was written or reviewed
  steps INTEGER NOT NULL,                  -- with tool calls, since a skill was written or reviewed
  reasons TEXT NOT NULL,                   -- JSON list of what has fired and is not queued yet
  runtime TEXT NOT NULL                    -- JSON of the model that answered last
) WITHOUT ROWID;

CREATE TABLE reviews (
  job TEXT PRIMARY KEY,
  session INTEGER NOT NULL,                -- key of the reviewed session
  child INTEGER NOT NULL DEFAULT 0,        -- key of the review's own session, 0 until it began
  view TEXT NOT NULL DEFAULT '[]',         -- what it reads: a number is a message of `session`
  failures INTEGER NOT NULL DEFAULT 0,
  finished TEXT NOT NULL DEFAULT '',
  summary TEXT NOT NULL DEFAULT '',        -- of what was saved; empty where nothing was
  note TEXT NOT NULL DEFAULT ''            -- why it ended early or not at all
) WITHOUT ROWID;
CREATE INDEX reviews_by_session ON reviews (session);
CREATE INDEX reviews_by_child ON reviews (child) WHERE child <> 0;
"""

# Which sessions of other programs were stored, so that importing them again adds nothing twice.
M004_IMPORTS = """
CREATE TABLE imports (
  origin TEXT NOT NULL,
  foreign_id TEXT NOT NULL,
  session INTEGER NOT NULL,
  messages INTEGER NOT NULL,
  digest BLOB NOT NULL,                    -- of those messages
  at TEXT NOT NULL,
  PRIMARY KEY (origin, foreign_id)
) WITHOUT ROWID;
CREATE INDEX imports_by_session ON imports (session);
"""

# Warm sessions: the examples a session was started with, the outcome of each call, and the results of
# templates.
#
# `prime_text` is part of a session's frozen prefix, next to its system prompt and tool array: the examples
# are never rows of `messages`, so they can't be mistaken for the conversation.
M005_WARM = """
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

# Which learned items a session began with, and people's verdicts on its turns.
#
# Other signals (a correction, an undo, failed calls) are read from the transcript's own tables when needed.
M006_OUTCOMES = """
CREATE TABLE context_items (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,                      -- memory | user | skill | example
  name TEXT NOT NULL,
  hash TEXT NOT NULL,
  label TEXT NOT NULL,                     -- its beginning, for lists
  UNIQUE (kind, name, hash)
);

CREATE TABLE session_items (
  session INTEGER NOT NULL,
  item INTEGER NOT NULL REFERENCES context_items (id),
  held_out INTEGER NOT NULL,               -- left out by chance: the session began without it
  randomised INTEGER NOT NULL,             -- whether chance decided at all
  PRIMARY KEY (session, item)
) WITHOUT ROWID;
CREATE INDEX session_items_by_item ON session_items (item);

CREATE TABLE turn_signals (
  session INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  signal TEXT NOT NULL,                    -- good | bad | retry
  at TEXT NOT NULL,
  PRIMARY KEY (session, turn, signal)
) WITHOUT ROWID;
"""
