"""Which sessions of other programs were stored, so that importing them again adds nothing twice."""

from __future__ import annotations

import apsw

_SCHEMA = """
CREATE TABLE imports (
  origin TEXT NOT NULL,
  foreign_id TEXT NOT NULL,
  session INTEGER NOT NULL,
  messages INTEGER NOT NULL,
  digest BLOB NOT NULL,                    -- of those messages
  at TEXT NOT NULL,
  PRIMARY KEY (origin, foreign_id)
) WITHOUT ROWID;
CREATE INDEX imports_by_session ON imports (session);
"""


def m004_imports(connection: apsw.Connection) -> None:
    """Create the table of imports."""
    connection.execute(_SCHEMA)
