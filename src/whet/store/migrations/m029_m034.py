"""Schema steps 29 to 34: estimated tokens, accepted messages, indexes of lists, pinned sessions, model calls,
outcomes that a review pointed at.

A released step is never changed.
"""

from __future__ import annotations

# How many of a session's tokens are Whet's own estimate.
M029_ESTIMATED_TOKENS = """
ALTER TABLE sessions ADD COLUMN estimated_tokens INTEGER NOT NULL DEFAULT 0;
"""

# Messages that were accepted for a session and that no turn has stored yet.
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

# Indexes for lists that read every session, fork or job to show a few. All but the one of archived sessions
# are on columns that do not change: no step of a turn writes them.
M031_LIST_INDEXES = """
CREATE INDEX api_sessions_by_token ON api_sessions (token, session);
CREATE INDEX sessions_by_workspace ON sessions (workspace);
CREATE INDEX sessions_by_source ON sessions (source);
CREATE INDEX sessions_archived ON sessions (last_active DESC, key DESC) WHERE archived <> '';
CREATE INDEX forks_by_origin ON forks (origin);
CREATE INDEX reviews_by_time ON jobs (created DESC, id DESC) WHERE kind = 'review';
"""

# Sessions that a person keeps at the top of lists.
M032_PINNED_SESSIONS = """
ALTER TABLE sessions ADD COLUMN pinned TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_pinned ON sessions (pinned) WHERE pinned <> '';
"""

# The process that makes a model call: the call of one that was killed is not under way. Empty: made before.
M033_WALLET_CALL_OWNERS = """
ALTER TABLE wallet_calls ADD COLUMN owner TEXT NOT NULL DEFAULT '';
"""

# The outcome of a call that a review pointed at and the program verified; empty: none did.
M034_POINTED_OUTCOMES = """
ALTER TABLE tool_calls ADD COLUMN pointed TEXT NOT NULL DEFAULT '';
"""
