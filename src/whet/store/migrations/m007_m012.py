"""Schema steps 7 to 12: people, schedules, the API, the gateway, imported homes, chosen models.

A released step is never changed.
"""

from __future__ import annotations

# The person of a session, if several people use one home.
M007_PEOPLE = "ALTER TABLE sessions ADD COLUMN profile TEXT NOT NULL DEFAULT ''"

# Schedules, and each run of one. The next time is in the schedule's waiting row of `jobs`.
M008_SCHEDULES = """
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

# The API: its tokens, who is signed in on its page, and the session of each client's conversation.
M009_API = """
CREATE TABLE api_tokens (
  id TEXT PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE,               -- SHA-256 of the secret, which is nowhere
  name TEXT NOT NULL,
  role TEXT NOT NULL,                      -- owner | chat | guest
  created TEXT NOT NULL,
  revoked TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

CREATE TABLE api_sessions (
  session INTEGER PRIMARY KEY,
  token TEXT NOT NULL,                     -- the name of the token that it was begun with
  client_key TEXT NOT NULL DEFAULT '',     -- what the client calls it; empty where it gave no name
  instructions TEXT NOT NULL DEFAULT ''    -- hash of the client's instructions that the model was last given
);
CREATE UNIQUE INDEX api_sessions_by_client ON api_sessions (token, client_key) WHERE client_key <> '';

CREATE TABLE api_responses (
  id TEXT PRIMARY KEY,
  session INTEGER NOT NULL,
  turn INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX api_responses_by_session ON api_responses (session);

CREATE TABLE api_logins (
  id_hash TEXT PRIMARY KEY,
  token TEXT NOT NULL,                     -- the id of the token that signed in
  csrf TEXT NOT NULL,
  created_s REAL NOT NULL,
  expires_s REAL NOT NULL
) WITHOUT ROWID;
"""

# Messages from and to chat platforms, and the people who may use this home from there.
M010_GATEWAY = """
CREATE TABLE gateway_chats (               -- a person's conversation in one place
  id INTEGER PRIMARY KEY,
  channel TEXT NOT NULL,
  chat TEXT NOT NULL,
  thread TEXT NOT NULL,
  user TEXT NOT NULL,
  is_group INTEGER NOT NULL,
  session_id TEXT NOT NULL DEFAULT '',
  draft TEXT NOT NULL DEFAULT '',          -- the message that shows the running answer; ? while it is sent
  UNIQUE (channel, chat, thread, user)
);
CREATE INDEX gateway_chats_by_session ON gateway_chats (session_id);

CREATE TABLE gateway_inbox (
  id INTEGER PRIMARY KEY,
  channel TEXT NOT NULL,
  update_id TEXT NOT NULL,
  chat INTEGER NOT NULL,
  body TEXT NOT NULL,                      -- JSON
  state TEXT NOT NULL DEFAULT 'waiting',   -- waiting | begun | done | dropped
  at_ms INTEGER NOT NULL,
  UNIQUE (channel, update_id)
);
CREATE INDEX gateway_inbox_open ON gateway_inbox (chat, id) WHERE state IN ('waiting', 'begun');

CREATE TABLE gateway_outbox (
  id INTEGER PRIMARY KEY,
  channel TEXT NOT NULL,
  chat INTEGER NOT NULL,
  body TEXT NOT NULL,                      -- JSON
  state TEXT NOT NULL DEFAULT 'queued',    -- queued | sending | sent | unknown | failed
  ref TEXT NOT NULL DEFAULT '',            -- the platform's name of the message
  attempts INTEGER NOT NULL DEFAULT 0,
  run_after_ms INTEGER NOT NULL DEFAULT 0,
  at_ms INTEGER NOT NULL,
  error TEXT NOT NULL DEFAULT ''
);
CREATE INDEX gateway_outbox_open ON gateway_outbox (channel, chat, id) WHERE state IN ('queued', 'sending');
CREATE INDEX gateway_outbox_odd ON gateway_outbox (channel, id) WHERE state IN ('unknown', 'failed');

CREATE TABLE gateway_cursors (             -- how far a channel has been read
  channel TEXT NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (channel, name)
) WITHOUT ROWID;

CREATE TABLE gateway_people (              -- let in by a pairing code
  channel TEXT NOT NULL,
  user TEXT NOT NULL,
  name TEXT NOT NULL,
  since TEXT NOT NULL,
  PRIMARY KEY (channel, user)
) WITHOUT ROWID;

CREATE TABLE gateway_codes (               -- who waits to be let in; codes are kept as digests
  channel TEXT NOT NULL,
  user TEXT NOT NULL,
  name TEXT NOT NULL,
  chat INTEGER NOT NULL,
  digest TEXT NOT NULL,
  made_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  PRIMARY KEY (channel, user)
) WITHOUT ROWID;
"""

# Step 11: the items imported from another program's home, so that items removed here stay removed.
M011_MOVED = """
CREATE TABLE moved (
  origin TEXT NOT NULL,                    -- the program
  part TEXT NOT NULL,                      -- mcp, schedules, chats, persona
  name TEXT NOT NULL,                      -- what it is called there
  at TEXT NOT NULL,
  PRIMARY KEY (origin, part, name)
) WITHOUT ROWID;
"""

# Add whether a session's model was chosen for it, rather than the configured one when it began.
M012_CHOSEN_MODELS = "ALTER TABLE sessions ADD COLUMN model_chosen INTEGER NOT NULL DEFAULT 0"
