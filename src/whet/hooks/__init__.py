"""Shell hooks: commands of the owner or of a repository that run at a session's events."""
