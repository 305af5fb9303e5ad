"""What chat platforms sent and what goes back to them, and who may talk to this home there."""

from __future__ import annotations

import apsw

_SCHEMA = """
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


def m010_gateway(connection: apsw.Connection) -> None:
    """Create the gateway's tables."""
    connection.execute(_SCHEMA)
