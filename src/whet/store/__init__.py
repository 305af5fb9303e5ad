"""The session database: one SQLite file, one writer, many readers."""
