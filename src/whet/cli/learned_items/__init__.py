"""The commands for what was learned: memory, skills, undo and forget."""
