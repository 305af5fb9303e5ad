"""Sessions that begin where another one was, and sessions that are put aside."""

M019_FORKS = """
CREATE TABLE forks (
  session INTEGER PRIMARY KEY,             -- key of the session that was made
  origin TEXT NOT NULL,                    -- id of the session that it goes on from, which may be gone
  turn INTEGER NOT NULL                    -- the last turn that both have
);
ALTER TABLE sessions ADD COLUMN archived TEXT NOT NULL DEFAULT '';  -- when it was put aside; empty: it is not
"""
