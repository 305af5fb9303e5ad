"""Schema steps 30 and 31: messages that were accepted and that no turn has stored yet; indexes for lists."""

from __future__ import annotations

M030_ACCEPTED_MESSAGES = """
CREATE TABLE accepted_messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  session TEXT NOT NULL,                   -- the session's id
  owner TEXT NOT NULL,                     -- the process that accepted it and hands it to a turn
  content TEXT NOT NULL,
  extra TEXT                               -- as of a message
);
CREATE INDEX accepted_messages_by_session ON accepted_messages (session, id);
"""

# For lists that read every session, fork or review to show a few. All but the one of archived sessions are on
# columns that do not change: no step of a turn writes them.
M031_LIST_INDEXES = """
CREATE INDEX api_sessions_by_token ON api_sessions (token, session);
CREATE INDEX sessions_by_workspace ON sessions (workspace);
CREATE INDEX sessions_by_source ON sessions (source);
CREATE INDEX sessions_archived ON sessions (last_active DESC, key DESC) WHERE archived <> '';
CREATE INDEX forks_by_origin ON forks (origin);
CREATE INDEX reviews_by_time ON jobs (created DESC, id DESC) WHERE kind = 'review';
"""
