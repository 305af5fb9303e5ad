"""Schema step 30: messages that were accepted for a session and that no turn has stored yet."""

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
