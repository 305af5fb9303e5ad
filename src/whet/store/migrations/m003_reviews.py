"""Reviews of finished turns, the counters that call for them, and which jobs exclude each other."""

from __future__ import annotations

import apsw

_SCHEMA = """
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


def m003_reviews(connection: apsw.Connection) -> None:
    """Add the tables and the jobs' subject."""
    connection.execute(_SCHEMA)
