"""What every SQLite file of ours shares: the writer lane with group commit, and SQLite's errors as ours."""
