"""The review of a finished turn: its triggers, the fork that does it, the worker that runs it."""
