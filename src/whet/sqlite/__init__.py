"""The shared basis of every SQLite file of ours: the writer lane with group commit, and the translation of
SQLite's errors."""
