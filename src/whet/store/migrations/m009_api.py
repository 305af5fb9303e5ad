"""The API: its tokens, who is signed in on its page, and which session a client's conversation is."""

from __future__ import annotations

import apsw

_SCHEMA = """
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


def m009_api(connection: apsw.Connection) -> None:
    """Create the tables of the API."""
    connection.execute(_SCHEMA)
