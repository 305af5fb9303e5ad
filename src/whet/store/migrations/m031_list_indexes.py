"""Schema step 31: indexes for lists that read every session, fork or job to show a few.

All but the one of archived sessions are on columns that do not change: no step of a turn writes them.
"""

from __future__ import annotations

M031_LIST_INDEXES = """
CREATE INDEX api_sessions_by_token ON api_sessions (token, session);
CREATE INDEX sessions_by_workspace ON sessions (workspace);
CREATE INDEX sessions_by_source ON sessions (source);
CREATE INDEX sessions_archived ON sessions (last_active DESC, key DESC) WHERE archived <> '';
CREATE INDEX forks_by_origin ON forks (origin);
CREATE INDEX reviews_by_time ON jobs (created DESC, id DESC) WHERE kind = 'review';
"""
