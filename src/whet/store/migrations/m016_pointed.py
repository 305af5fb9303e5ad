"""Step 16: a model's remark stands apart from what is in force; what people were told of learning."""

from __future__ import annotations

# Old rows have no remark: what they say was written by a model or a person, and stays as it is.
M016_POINTED = """
ALTER TABLE ledger ADD COLUMN remark TEXT NOT NULL DEFAULT '';

CREATE TABLE learned_told (                -- the last change of which a person was told when they came back
  profile TEXT PRIMARY KEY,
  ledger INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO learned_told (profile, ledger) SELECT profile, max(id) FROM ledger GROUP BY profile;
"""
