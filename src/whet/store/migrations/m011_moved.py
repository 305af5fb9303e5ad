"""Step 11: what was taken over from another program's home, so that what is removed here stays removed."""

from __future__ import annotations

import apsw

_SCHEMA = """
CREATE TABLE moved (
  origin TEXT NOT NULL,                    -- the program
  part TEXT NOT NULL,                      -- mcp, schedules, chats, persona
  name TEXT NOT NULL,                      -- what it is called there
  at TEXT NOT NULL,
  PRIMARY KEY (origin, part, name)
) WITHOUT ROWID;
"""


def m011_moved(connection: apsw.Connection) -> None:
    """Create the table."""
    connection.execute(_SCHEMA)
